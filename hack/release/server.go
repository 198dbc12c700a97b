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
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	// upstreamRegistry is where kubeadm looks for images unless it is told otherwise.
	upstreamRegistry = "registry.k8s.io"
	serverBin        = "kubernetes/server/bin/"
	kubeProxy        = "kube-proxy"
)

// staticPods are the images that kubeadm runs on each control plane.
var staticPods = []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}

func serverTarball(platform string) string {
	return fmt.Sprintf("kubernetes-server-%s.tar.gz", dashed(platform))
}

// check says what is missing before anything is built.
func (r *release) check() error {
	if _, err := name.NewRepository(r.registry+"/kube-apiserver", name.WeakValidation); err != nil {
		return fmt.Errorf("-registry=%s: %w", r.registry, err)
	}
	if r.stock == "" {
		return nil
	}
	var errs []error
	for _, platform := range platforms {
		_, err := os.Stat(filepath.Join(r.stock, serverTarball(platform)))
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("-stock=%s is to hold upstream's server tarballs of %s, from https://dl.k8s.io/%[2]s/: %w", r.stock, r.Upstream, err)
	}
	return nil
}

// packServer writes the tarball that `kind build node-image` and others take in place of
// upstream's. Its images have upstream's names and run as root, as upstream's do: the keys that
// kubeadm makes are root's alone.
func (r *release) packServer(platform string) error {
	work, err := os.MkdirTemp(r.out, "server-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	entries := []entry{
		{path: "kubernetes/version", mode: 0o644, data: []byte(r.Version + "\n")},
		{path: "kubernetes/LICENSES/LICENSE", mode: 0o644, data: r.license},
	}
	for _, name := range r.binaries() {
		entries = append(entries, entry{path: serverBin + name, mode: 0o755, file: r.binary(name, platform)})
	}
	add := func(pod, archive string) {
		entries = append(entries,
			entry{path: serverBin + pod + ".tar", mode: 0o644, file: archive},
			entry{path: serverBin + pod + ".docker_tag", mode: 0o644, data: []byte(r.tag() + "\n")})
	}
	for _, pod := range staticPods {
		i := images[slices.IndexFunc(images, func(i image) bool { return i.name == pod })]
		img, err := r.image(i, platform, "")
		if err != nil {
			return err
		}
		ref, err := r.upstreamName(pod, platform)
		if err != nil {
			return err
		}
		archive := filepath.Join(work, pod+".tar")
		if err := writeArchive(archive, ref, img); err != nil {
			return err
		}
		add(pod, archive)
	}
	if r.stock != "" {
		archive, err := r.kubeProxy(platform, work)
		if err != nil {
			return err
		}
		add(kubeProxy, archive)
	}
	return writeTarball(filepath.Join(r.out, serverTarball(platform)), entries, r.Date)
}

func (r *release) upstreamName(pod, platform string) (name.Tag, error) {
	return name.NewTag(fmt.Sprintf("%s/%s-%s:%s", upstreamRegistry, pod, arch(platform), r.tag()), name.StrictValidation)
}

// kubeProxy takes kube-proxy's image, which the fork does not change, from upstream's server
// tarball, and gives it this release's tag. It returns the archive.
func (r *release) kubeProxy(platform, work string) (archive string, err error) {
	from := filepath.Join(r.stock, serverTarball(platform))
	stock := filepath.Join(work, "stock-"+kubeProxy+".tar")
	if err := extract(from, serverBin+kubeProxy+".tar", stock); err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	opener := func() (io.ReadCloser, error) { return os.Open(stock) }
	saved, err := tarball.LoadManifest(opener)
	if err != nil {
		return "", fmt.Errorf("%s in %s: %w", kubeProxy, from, err)
	}
	if len(saved) != 1 || len(saved[0].RepoTags) != 1 || !strings.HasSuffix(saved[0].RepoTags[0], ":"+r.Upstream) {
		return "", fmt.Errorf("%s in %s holds %v, want one image of %s", kubeProxy, from, saved, r.Upstream)
	}
	img, err := tarball.Image(opener, nil)
	if err != nil {
		return "", err
	}
	ref, err := r.upstreamName(kubeProxy, platform)
	if err != nil {
		return "", err
	}
	archive = filepath.Join(work, kubeProxy+".tar")
	return archive, writeArchive(archive, ref, img)
}

// extract copies one file out of a compressed archive.
func extract(from, path, to string) error {
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return err
	}
	for t := tar.NewReader(z); ; {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("it does not hold %s", path)
		}
		if err != nil {
			return err
		}
		if header.Name == path {
			return create(to, func(out io.Writer) error { _, err := io.Copy(out, t); return err })
		}
	}
}
