/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"
)

// shared is packed once for all tests that only read it.
var shared struct {
	sync.Once
	*release
	dir string
}

func TestMain(m *testing.M) {
	var err error
	if shared.dir, err = os.MkdirTemp("", "release-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(shared.dir)
	os.Exit(code)
}

func packedRelease(t *testing.T) *release {
	t.Helper()
	shared.Do(func() { shared.release = packed(t, newReleaseIn(t, shared.dir)) })
	if shared.release == nil {
		t.Fatal("no release could be packed")
	}
	return shared.release
}

// newRelease returns a release of which each binary is this test.
func newRelease(t *testing.T) *release {
	t.Helper()
	return newReleaseIn(t, t.TempDir())
}

func newReleaseIn(t *testing.T, dir string) *release {
	t.Helper()
	r := &release{
		version: version{
			Version: "v1.37.1+ringmaster.7", Upstream: "v1.37.1", Commit: "0123abcd", State: "clean",
			Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		},
		static: filepath.Join(dir, "static"), out: filepath.Join(dir, "out"), registry: "registry.example.com/rings", license: []byte("the license\n"),
		say: t.Logf,
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range platforms {
		if err := errors.Join(os.MkdirAll(filepath.Join(r.static, dashed(platform)), 0o755), os.MkdirAll(r.out, 0o755)); err != nil {
			t.Fatal(err)
		}
		for _, name := range r.binaries() {
			if err := os.Symlink(self, r.binary(name, platform)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, data := range map[string]string{
		"api/go.mod": "module k8s.io/api\n", "api/v1/types.go": "package v1\n",
		"client-go/go.mod": "module k8s.io/client-go\n", "client-go/doc.go": "package client\n",
	} {
		if err := writeFile(filepath.Join(r.static, "source", staging, name), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func packed(t *testing.T, r *release) *release {
	t.Helper()
	if err := r.pack(); err != nil {
		t.Fatal(err)
	}
	return r
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestTheSameCommitGivesTheSameBytes(t *testing.T) {
	one, other := packedRelease(t), packed(t, newRelease(t))
	sums := func(r *release) string { return string(read(t, filepath.Join(r.out, sumsFile))) }
	if sums(one) != sums(other) {
		t.Errorf("two releases have\n%s\nand\n%s", sums(one), sums(other))
	}
	// The list has all files, with their hashes.
	err := filepath.WalkDir(one.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == sumsFile {
			return err
		}
		sum, err := hashFile(path)
		name, _ := filepath.Rel(one.out, path)
		if !strings.Contains(sums(one), sum+"  "+name+"\n") {
			t.Errorf("%s is not in %s", name, sumsFile)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAnImageRunsItsBinaryAsNobodyOfNote(t *testing.T) {
	r := packedRelease(t)
	var m manifest
	if err := json.Unmarshal(read(t, filepath.Join(r.out, "manifest.json")), &m); err != nil {
		t.Fatal(err)
	}
	if len(m.Images) != len(images) || m.Version != r.Version {
		t.Fatalf("the manifest is %+v", m)
	}
	for i, entry := range m.Images {
		if want := "registry.example.com/rings/" + images[i].name + ":v1.37.1_ringmaster.7"; entry.Name != want {
			t.Errorf("an image is %s, want %s", entry.Name, want)
		}
		index, err := layout.ImageIndexFromPath(filepath.Join(r.out, entry.Layout))
		if err != nil {
			t.Fatal(err)
		}
		top, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(top.Manifests) != 1 || top.Manifests[0].Digest.String() != entry.Digest || top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != r.tag() {
			t.Fatalf("the layout %s holds %+v, want %s", entry.Layout, top.Manifests, entry.Digest)
		}
		if err := filepath.WalkDir(filepath.Join(r.out, entry.Layout), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if info, err := d.Info(); err != nil || info.Mode() != 0o644 {
				t.Errorf("%s has mode %v: %v", path, info.Mode(), err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		multi, err := index.ImageIndex(top.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(multi); err != nil {
			t.Error(err)
		}
		all, err := multi.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		for j, platform := range platforms {
			p := entry.Platforms[j]
			if got := all.Manifests[j]; got.Platform.String() != platform || got.Digest.String() != p.Digest || p.Platform != platform {
				t.Errorf("the index has %+v, want %s of %s", got, p.Digest, platform)
			}
			img, err := multi.Image(all.Manifests[j].Digest)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, r, img, images[i].name, platform, "65532:65532")
			if size, err := pulled(img); err != nil || size != p.Bytes {
				t.Errorf("%s is %d bytes, %v; the manifest says %d", entry.Name, size, err, p.Bytes)
			}
			tag, err := name.NewTag(entry.Name)
			if err != nil {
				t.Fatal(err)
			}
			archived, err := tarball.ImageFromPath(filepath.Join(r.out, p.Archive), &tag)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, r, archived, images[i].name, platform, "65532:65532")
			if _, err := os.Stat(filepath.Join(r.out, p.SBOM)); err != nil {
				t.Error(err)
			}
		}
	}
}

// checkImage fails unless the image holds what it should.
func checkImage(t *testing.T, r *release, img v1.Image, name, platform, user string) {
	t.Helper()
	if err := validate.Image(img); err != nil {
		t.Error(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS+"/"+config.Architecture != platform || !config.Created.Equal(r.Date) {
		t.Errorf("%s is for %s/%s, of %v", name, config.OS, config.Architecture, config.Created)
	}
	c := config.Config
	if c.User != user || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/" + name}) {
		t.Errorf("%s runs %v as %q, want %q", name, c.Entrypoint, c.User, user)
	}
	if c.Labels["org.opencontainers.image.version"] != r.Version || c.Labels["org.opencontainers.image.revision"] != r.Commit {
		t.Errorf("%s has the labels %v", name, c.Labels)
	}
	files := untar(t, mutate.Extract(img))
	var paths []string
	for path, header := range files {
		paths = append(paths, fmt.Sprintf("%s %o", path, header.Mode))
		if header.Uid != 0 || header.Gid != 0 {
			t.Errorf("%s in the image of %s is %d's", path, name, header.Uid)
		}
	}
	slices.Sort(paths)
	if want := []string{
		"etc/ 755", "etc/group 644", "etc/passwd 644", "etc/ssl/ 755", "etc/ssl/certs/ 755", "etc/ssl/certs/ca-certificates.crt 644",
		"tmp/ 1777", "usr/ 755", "usr/local/ 755", "usr/local/bin/ 755", "usr/local/bin/" + name + " 755",
	}; !slices.Equal(paths, want) {
		t.Errorf("%s holds %q, want %q", name, paths, want)
	}
	info, err := os.Stat(r.binary(name, platform))
	if err != nil {
		t.Fatal(err)
	}
	if got := files["usr/local/bin/"+name]; got != nil && got.Size != info.Size() {
		t.Errorf("%s has %d bytes, want %d", name, got.Size, info.Size())
	}
	if got := files["etc/ssl/certs/ca-certificates.crt"]; got != nil && got.Size < 100_000 {
		t.Errorf("the certificates have %d bytes", got.Size)
	}
}

// untar returns what is in an archive, by path.
func untar(t *testing.T, in io.Reader) map[string]*tar.Header {
	t.Helper()
	files := map[string]*tar.Header{}
	for r := tar.NewReader(in); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir && !strings.HasSuffix(header.Name, "/") {
			header.Name += "/"
		}
		if files[header.Name] != nil {
			t.Errorf("the archive holds %s twice", header.Name)
		}
		files[header.Name] = header
	}
}

func untarFile(t *testing.T, path string) map[string]*tar.Header {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(read(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return untar(t, z)
}

func TestAServerTarballIsLaidOutAsUpstreams(t *testing.T) {
	r := packedRelease(t)
	for _, platform := range platforms {
		path := filepath.Join(r.out, serverTarball(platform))
		files := untarFile(t, path)
		want := []string{"kubernetes/", "kubernetes/LICENSES/", "kubernetes/LICENSES/LICENSE", "kubernetes/server/", "kubernetes/server/bin/", "kubernetes/version"}
		for _, name := range []string{
			"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubeadm", "kubectl", "kubectl-ring", "kubelet",
			"kube-apiserver.tar", "kube-controller-manager.tar", "kube-scheduler.tar",
			"kube-apiserver.docker_tag", "kube-controller-manager.docker_tag", "kube-scheduler.docker_tag",
		} {
			want = append(want, serverBin+name)
		}
		slices.Sort(want)
		if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", path, got, want)
		}
		for _, pod := range staticPods {
			to := filepath.Join(t.TempDir(), pod+".tar")
			if err := extract(path, serverBin+pod+".tar", to); err != nil {
				t.Fatal(err)
			}
			tag, err := name.NewTag("registry.k8s.io/" + pod + "-" + arch(platform) + ":v1.37.1_ringmaster.7")
			if err != nil {
				t.Fatal(err)
			}
			img, err := tarball.ImageFromPath(to, &tag)
			if err != nil {
				t.Fatal(err)
			}
			checkImage(t, r, img, pod, platform, "")
		}
	}
}

func TestAServerTarballTakesKubeProxyFromUpstreams(t *testing.T) {
	r := newRelease(t)
	r.stock = t.TempDir()
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "https://dl.k8s.io/v1.37.1/") {
		t.Errorf("without upstream's tarballs: %v", err)
	}
	img, err := r.image(images[0], platforms[0], "")
	if err != nil {
		t.Fatal(err)
	}
	stock := func(tag, entryName string) {
		t.Helper()
		ref, err := name.NewTag("registry.k8s.io/kube-proxy-amd64:" + tag)
		if err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(t.TempDir(), "kube-proxy.tar")
		if err := writeArchive(archive, ref, img); err != nil {
			t.Fatal(err)
		}
		for _, platform := range platforms {
			if err := writeTarball(filepath.Join(r.stock, serverTarball(platform)), []entry{{path: serverBin + entryName, mode: 0o644, file: archive}}, r.Date); err != nil {
				t.Fatal(err)
			}
		}
	}
	stock("v1.37.1", "kube-scheduler.tar")
	if err := r.packServer(platforms[0]); err == nil || !strings.Contains(err.Error(), "does not hold kubernetes/server/bin/kube-proxy.tar") {
		t.Errorf("without kube-proxy in upstream's tarball: %v", err)
	}
	stock("v1.36.0", "kube-proxy.tar")
	if err := r.packServer(platforms[0]); err == nil || !strings.Contains(err.Error(), "want one image of v1.37.1") {
		t.Errorf("with another kube-proxy: %v", err)
	}
	stock("v1.37.1", "kube-proxy.tar")
	if err := errors.Join(r.check(), r.packServer(platforms[0])); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "kube-proxy.tar")
	if err := extract(filepath.Join(r.out, serverTarball(platforms[0])), serverBin+"kube-proxy.tar", to); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("registry.k8s.io/kube-proxy-amd64:v1.37.1_ringmaster.7")
	if err != nil {
		t.Fatal(err)
	}
	got, err := tarball.ImageFromPath(to, &tag)
	if err != nil {
		t.Fatal(err)
	}
	before, _ := img.ConfigName()
	if after, err := got.ConfigName(); err != nil || after != before {
		t.Errorf("kube-proxy's image has become %v, %v; it was %v", after, err, before)
	}
}

func TestKrewFindsThePlugin(t *testing.T) {
	r := packedRelease(t)
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				URI, Sha256, Bin string
				Selector         struct{ MatchLabels map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(r.out, krewDir, "ring.yaml")), &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Spec.Version != "v1.37.1-ringmaster.7" || len(plugin.Spec.Platforms) != len(platforms) {
		t.Fatalf("the plugin is %+v", plugin)
	}
	for i, p := range plugin.Spec.Platforms {
		archive := filepath.Join(r.out, krewDir, filepath.Base(p.URI))
		sum, err := hashFile(archive)
		if err != nil || sum != p.Sha256 || p.Selector.MatchLabels["arch"] != arch(platforms[i]) {
			t.Errorf("%+v: the hash is %s, %v", p, sum, err)
		}
		if files := untarFile(t, archive); len(files) != 2 || files[p.Bin] == nil || files[p.Bin].Mode != 0o755 || files["LICENSE"] == nil {
			t.Errorf("%s holds %v", archive, files)
		}
	}
}

func TestKubeadmRunsTheReleasesImagesAsRoot(t *testing.T) {
	r := packedRelease(t)
	for _, pod := range staticPods {
		var patch struct {
			Metadata struct{ Name string }
			Spec     struct {
				SecurityContext struct{ RunAsUser *int }
				Containers      []struct{ Name, Image string }
			}
		}
		if err := yaml.Unmarshal(read(t, filepath.Join(r.out, kubeadmDir, patchesDir, pod+"0+strategic.yaml")), &patch); err != nil {
			t.Fatal(err)
		}
		c := patch.Spec.Containers
		if len(c) != 1 || c[0].Name != pod || c[0].Image != "registry.example.com/rings/"+pod+":v1.37.1_ringmaster.7" || patch.Metadata.Name != pod {
			t.Errorf("%s is patched with %+v", pod, patch)
		}
		if user := patch.Spec.SecurityContext.RunAsUser; user == nil || *user != 0 {
			t.Errorf("%s would not run as root, and could not read its keys", pod)
		}
	}
	first, err := os.ReadDir(filepath.Join(r.out, kubeadmDir, firstDir))
	if err != nil || len(first) != 1 || first[0].Name() != "kube-apiserver0+strategic.yaml" {
		t.Errorf("the first round has %v: %v", first, err)
	}
}

func TestKubeadmFindsThePatches(t *testing.T) {
	r := packedRelease(t)
	var first, other struct {
		Patches      struct{ Directory string }
		ControlPlane struct{ CertificateKey string }
	}
	for name, into := range map[string]any{"init.yaml": &first, "join.yaml": &other} {
		document, _, _ := strings.Cut(string(read(t, filepath.Join(r.out, kubeadmDir, name))), "---\n")
		if err := yaml.Unmarshal([]byte(document), into); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if first.Patches.Directory != "/etc/kubernetes/ringmaster/patches" || other.Patches.Directory != first.Patches.Directory || len(other.ControlPlane.CertificateKey) != 64 {
		t.Errorf("the configurations are %+v and %+v", first, other)
	}
}

func TestAnSBOMListsTheModules(t *testing.T) {
	r := packedRelease(t)
	doc, err := spdxjson.Read(bytes.NewReader(read(t, filepath.Join(r.out, sbomPath("kubectl", platforms[1])))))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, p := range doc.Packages {
		versions[p.PackageName] = p.PackageVersion
		if p.PackageName != "kubectl" && p.PackageExternalReferences[0].Locator != "pkg:golang/"+p.PackageName+"@"+p.PackageVersion {
			t.Errorf("%s has the address %s", p.PackageName, p.PackageExternalReferences[0].Locator)
		}
	}
	if versions["kubectl"] != r.Version || versions["stdlib"] == "" || !strings.HasPrefix(versions["github.com/google/go-containerregistry"], "v0.") {
		t.Errorf("the modules are %v", versions)
	}
	if len(doc.Relationships) != len(doc.Packages) {
		t.Errorf("%d packages have %d relationships", len(doc.Packages), len(doc.Relationships))
	}
}

func TestBinariesOfAnotherSourceAreRefused(t *testing.T) {
	r := newRelease(t)
	info := func(version, revision, modified string) *buildinfo.BuildInfo {
		return &buildinfo.BuildInfo{
			Main:     debug.Module{Version: version},
			Settings: []debug.BuildSetting{{Key: "vcs.revision", Value: revision}, {Key: "vcs.modified", Value: modified}},
		}
	}
	if revision, err := r.sourceOf(info("v1.37.1", "abc", "false")); revision != "abc" || err != nil {
		t.Errorf("the source is %q, %v", revision, err)
	}
	for _, bad := range []*buildinfo.BuildInfo{info("v1.37.1+dirty", "abc", "true"), info("v1.37.1", "abc", "true"), info("(devel)", "abc", "false"), info("v1.37.1", "", "false"), {}} {
		if _, err := r.sourceOf(bad); err == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
	// This test is no release.
	if err := r.checkBinaries(); err == nil || !strings.Contains(err.Error(), "kube-apiserver for linux/amd64") {
		t.Errorf("error %v", err)
	}
}

func TestARegistryIsChecked(t *testing.T) {
	r := newRelease(t)
	for _, good := range []string{"localhost/ringmaster", "registry.example.com", "127.0.0.1:5000/a/b"} {
		r.registry = good
		if err := r.check(); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	r.registry = "Registry.example.com/Rings!"
	if err := r.check(); err == nil || !strings.Contains(err.Error(), "-registry=Registry.example.com/Rings!") {
		t.Errorf("error %v", err)
	}
}
