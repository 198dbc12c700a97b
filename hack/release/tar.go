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
	"cmp"
	"compress/gzip"
	"io"
	"os"
	"path"
	"slices"
	"time"
)

// entry is a file or a folder of an archive.
type entry struct {
	// path has no slash at its begin.
	path string
	mode int64
	// file is where its content is, data the content itself if there is no file.
	file string
	data []byte
	dir  bool
}

// writeTar writes these, and the folders that they are in, in order of path, all of that time and
// root's.
func writeTar(out io.Writer, entries []entry, date time.Time) error {
	t := tar.NewWriter(out)
	for _, e := range withFolders(entries) {
		header := &tar.Header{Name: e.path, Mode: e.mode, ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		content := io.Reader(bytes.NewReader(e.data))
		header.Size = int64(len(e.data))
		switch {
		case e.dir:
			header.Typeflag, header.Name = tar.TypeDir, e.path+"/"
		case e.file != "":
			f, err := os.Open(e.file)
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			header.Size, content = info.Size(), f
		}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(t, content); err != nil {
			return err
		}
	}
	return t.Close()
}

func withFolders(entries []entry) []entry {
	all := slices.Clone(entries)
	for _, e := range entries {
		for dir := path.Dir(e.path); dir != "."; dir = path.Dir(dir) {
			if !slices.ContainsFunc(all, func(e entry) bool { return e.path == dir }) {
				all = append(all, entry{path: dir, mode: 0o755, dir: true})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	return all
}

// writeTarball writes a compressed archive to a file.
func writeTarball(to string, entries []entry, date time.Time) error {
	return create(to, func(out io.Writer) error {
		// Its header has neither a name nor a time.
		z := gzip.NewWriter(out)
		if err := writeTar(z, entries, date); err != nil {
			return err
		}
		return z.Close()
	})
}
