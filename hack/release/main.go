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

// Command release builds the tree's binaries for each platform, and packs them: images as OCI
// layouts and as archives, server tarballs, patches for kubeadm, kubectl-ring for krew, and lists
// of what is in them. It needs no container engine. The same commit gives the same bytes. Run it
// from the repository's root:
//
//	go run ./hack/release [-registry=localhost/ringmaster] [-stock=DIR]
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	forktree = "./hack/forktree"
	// folder is where a release is put.
	folder = "_output/release"
)

// platforms are those that a release is for.
var platforms = []string{"linux/amd64", "linux/arm64"}

// image is a binary that is released as an image, too.
type image struct {
	name, title string
}

var images = []image{
	{"kube-apiserver", "The Kubernetes API server, with hash keys and rings"},
	{"kube-controller-manager", "The Kubernetes controller manager, of which many work at once"},
	{"kube-scheduler", "The Kubernetes scheduler"},
	{"kubectl", "The Kubernetes command line tool"},
	{"kubectl-ring", "Shows and steers the rings of controller managers"},
}

// tools are the binaries that only the server tarball has beside those.
var tools = []string{"kubeadm", "kubelet"}

// version is what forktree says of what is built.
type version struct {
	Version, Upstream, Commit, State string
	Date                             time.Time
}

// tag is the version as the tag of an image. kubeadm makes the same of it.
func (v *version) tag() string { return strings.ReplaceAll(v.Version, "+", "_") }

// release is what is packed into one folder.
type release struct {
	version
	// static holds the binaries, in a folder for each platform.
	static, out string
	registry    string
	// stock holds upstream's server tarballs; "": kube-proxy's image is left out.
	stock string
	// license is the text of the license.
	license []byte
	say     func(format string, args ...any)
	// layers are those that were made, by the path of their binary; "": the one that all images share.
	layers map[string]v1.Layer
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("release: ")
	registry := flag.String("registry", "localhost/ringmaster", "where the images will be pulled from, the first part of their names")
	stock := flag.String("stock", "", "folder with upstream's kubernetes-server-linux-amd64.tar.gz and -arm64.tar.gz, for kube-proxy's image in ours; without it that image is left out")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("takes no arguments, not %q", flag.Args())
	}
	if err := run(*registry, *stock); err != nil {
		log.Fatal(err)
	}
}

func run(registry, stock string) error {
	r := &release{static: "_output/static", out: folder + ".new", registry: registry, stock: stock}
	started := time.Now()
	r.say = func(format string, args ...any) {
		fmt.Printf("[%5.1f s] %s\n", time.Since(started).Seconds(), fmt.Sprintf(format, args...))
	}
	var err error
	if r.version, err = currentVersion(); err != nil {
		return err
	}
	if r.State != "clean" {
		return errors.New("there are uncommitted changes here, or unsaved edits in the tree: a release is made of a commit, so that anybody can make it again; commit them (after `make save`), or stash them")
	}
	if err := r.check(); err != nil {
		return err
	}
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	for _, platform := range platforms {
		args := []string{"run", forktree, "static", platform}
		for _, i := range images {
			args = append(args, i.name)
		}
		cmd := exec.Command("go", append(args, tools...)...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("forktree static %s: %w", platform, err)
		}
	}
	if now, err := currentVersion(); err != nil || now != r.version {
		return errors.Join(err, fmt.Errorf("the commit was %s %s and is %s %s now: try again, and leave the repository alone meanwhile", r.Commit, r.State, now.Commit, now.State))
	}
	if err := r.checkBinaries(); err != nil {
		return err
	}
	// What was there stays until the new release is whole.
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	if err := r.pack(); err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(folder), os.Rename(r.out, folder)); err != nil {
		return err
	}
	r.say("%s is in %s", r.Version, folder)
	return nil
}

// currentVersion is the version of what would be built now.
func currentVersion() (v version, err error) {
	said, err := exec.Command("go", "run", forktree, "version").Output()
	if err != nil {
		return v, fmt.Errorf("forktree version: %w", err)
	}
	return v, json.Unmarshal(said, &v)
}

// checkBinaries fails unless all binaries were built from one source, which has no edits.
func (r *release) checkBinaries() error {
	revisions := map[string]bool{}
	for _, platform := range platforms {
		for _, name := range r.binaries() {
			info, err := buildinfo.ReadFile(r.binary(name, platform))
			if err != nil {
				return err
			}
			revision, err := r.sourceOf(info)
			if err != nil {
				return fmt.Errorf("%s for %s: %w", name, platform, err)
			}
			revisions[revision] = true
		}
	}
	if len(revisions) != 1 {
		return fmt.Errorf("the binaries were built from several sources: %q", slices.Sorted(maps.Keys(revisions)))
	}
	return nil
}

// sourceOf returns the commit of the tree that a binary was built from.
func (r *release) sourceOf(info *buildinfo.BuildInfo) (revision string, err error) {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if info.Main.Version != r.Upstream || settings["vcs.modified"] != "false" || settings["vcs.revision"] == "" {
		return "", fmt.Errorf("it says that it was built from version %q, of commit %q (modified: %q), want %s without changes",
			info.Main.Version, settings["vcs.revision"], settings["vcs.modified"], r.Upstream)
	}
	return settings["vcs.revision"], nil
}

// pack writes the release into its folder.
func (r *release) pack() error {
	m := &manifest{Version: r.Version, Upstream: r.Upstream, Commit: r.Commit, Date: r.Date, Go: runtime.Version()}
	for _, i := range images {
		r.say("packing the image of %s", i.name)
		entry, err := r.packImage(i)
		if err != nil {
			return fmt.Errorf("image of %s: %w", i.name, err)
		}
		m.Images = append(m.Images, entry)
	}
	for _, platform := range platforms {
		r.say("packing the server tarball for %s", platform)
		if err := r.packServer(platform); err != nil {
			return fmt.Errorf("server tarball for %s: %w", platform, err)
		}
		for _, name := range r.binaries() {
			if err := r.writeSBOM(name, platform); err != nil {
				return fmt.Errorf("SBOM of %s for %s: %w", name, platform, err)
			}
		}
	}
	if err := errors.Join(r.packKrew(), r.writeKubeadm(), r.packModules()); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(r.out, "manifest.json"), m); err != nil {
		return err
	}
	return writeSums(r.out)
}

// binaries are the names of all that is built.
func (r *release) binaries() (names []string) {
	for _, i := range images {
		names = append(names, i.name)
	}
	return append(names, tools...)
}

// binary is the path of one.
func (r *release) binary(name, platform string) string {
	return filepath.Join(r.static, dashed(platform), name)
}

// dashed is a platform as a part of a file's name.
func dashed(platform string) string { return strings.ReplaceAll(platform, "/", "-") }

func arch(platform string) string { return platform[strings.Index(platform, "/")+1:] }
