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
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const (
	// nonroot is the user and group of an image's process.
	nonroot = 65532
	binDir  = "usr/local/bin"
)

// packImage writes an image for all platforms as one OCI layout, and for each platform as an
// archive.
func (r *release) packImage(i image) (manifestImage, error) {
	ref, err := name.NewTag(r.registry+"/"+i.name+":"+r.tag(), name.WeakValidation)
	if err != nil {
		return manifestImage{}, err
	}
	m := manifestImage{Name: ref.String(), Layout: "images/" + i.name}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		img, err := r.image(i, platform, fmt.Sprintf("%[1]d:%[1]d", nonroot))
		if err != nil {
			return m, err
		}
		p := manifestPlatform{
			Platform: platform,
			Archive:  fmt.Sprintf("images/%s-%s.tar", i.name, dashed(platform)),
			SBOM:     sbomPath(i.name, platform),
		}
		digest, err := img.Digest()
		if err != nil {
			return m, err
		}
		p.Digest = digest.String()
		if p.Bytes, err = pulled(img); err != nil {
			return m, err
		}
		if err := writeArchive(filepath.Join(r.out, p.Archive), ref, img); err != nil {
			return m, err
		}
		m.Platforms = append(m.Platforms, p)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch(platform)}},
		})
	}
	digest, err := index.Digest()
	if err != nil {
		return m, err
	}
	m.Digest = digest.String()
	l, err := layout.Write(filepath.Join(r.out, m.Layout), empty.Index)
	if err != nil {
		return m, err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.tag()})); err != nil {
		return m, err
	}
	return m, readable(string(l))
}

// readable lets everybody read the files below the folder, and nobody run them: layout leaves some
// to their owner alone, and makes others executable.
func readable(folder string) error {
	return filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o644)
	})
}

// image returns the image of one platform, whose process runs as that user.
func (r *release) image(i image, platform, user string) (v1.Image, error) {
	base, err := r.layer("", baseFiles)
	if err != nil {
		return nil, err
	}
	binary := r.binary(i.name, platform)
	own, err := r.layer(binary, func() []entry {
		return []entry{{path: binDir + "/" + i.name, mode: 0o755, file: binary}}
	})
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.Date}
	img, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON),
		mutate.Addendum{Layer: base, History: v1.History{Created: created, CreatedBy: "users and certificates"}},
		mutate.Addendum{Layer: own, History: v1.History{Created: created, CreatedBy: i.name}},
	)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch(platform), created
	config.Config = v1.Config{
		User:       user,
		Env:        []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/" + certificates},
		Entrypoint: []string{"/" + binDir + "/" + i.name},
		WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":       i.name,
			"org.opencontainers.image.description": i.title,
			"org.opencontainers.image.version":     r.Version,
			"org.opencontainers.image.revision":    r.Commit,
			"org.opencontainers.image.created":     r.Date.Format(time.RFC3339),
			"org.opencontainers.image.licenses":    "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}

const certificates = "etc/ssl/certs/ca-certificates.crt"

// baseFiles are those that all images have: root and a user that is not, a folder for temporary
// files, and the certificates of public authorities, for webhooks and identity providers outside.
func baseFiles() []entry {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		// Of a certificate that is trusted in part only, a file cannot say that.
		if root.Constraint == nil {
			pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return []entry{
		{path: "etc/passwd", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/:/sbin/nologin\n", nonroot)},
		{path: "etc/group", mode: 0o644, data: fmt.Appendf(nil, "root:x:0:\nnonroot:x:%d:\n", nonroot)},
		{path: certificates, mode: 0o644, data: roots.Bytes()},
		{path: "tmp", mode: 0o1777, dir: true},
	}
}

// layer returns the layer of that name, which is compressed once for all images that have it. Its
// files have no time of their own, so it changes only with them.
func (r *release) layer(name string, files func() []entry) (v1.Layer, error) {
	if l, ok := r.layers[name]; ok {
		return l, nil
	}
	entries := files()
	open := func() (io.ReadCloser, error) {
		in, out := io.Pipe()
		go func() { out.CloseWithError(writeTar(out, entries, time.Unix(0, 0))) }()
		return in, nil
	}
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	if r.layers == nil {
		r.layers = map[string]v1.Layer{}
	}
	r.layers[name] = l
	return l, nil
}

// pulled is how many bytes are pulled of an image.
func pulled(img v1.Image) (bytes int64, err error) {
	m, err := img.Manifest()
	if err != nil {
		return 0, err
	}
	bytes = m.Config.Size
	for _, l := range m.Layers {
		bytes += l.Size
	}
	return bytes, nil
}

// writeArchive writes an image as docker save does, which all others load, too.
func writeArchive(path string, ref name.Tag, img v1.Image) error {
	return create(path, func(out io.Writer) error { return tarball.Write(ref, img, out) })
}
