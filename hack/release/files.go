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
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// sumsFile lists the hash of each other file of a release, as sha256sum does.
const sumsFile = "SHA256SUMS"

// manifest says what images a release has.
type manifest struct {
	Version  string          `json:"version"`
	Upstream string          `json:"upstream"`
	Commit   string          `json:"commit"`
	Date     time.Time       `json:"date"`
	Go       string          `json:"go"`
	Images   []manifestImage `json:"images"`
}

type manifestImage struct {
	// Name is the image's with its tag, Digest that of the index of all platforms, and Layout the
	// folder of the OCI layout, whose tag is the image's.
	Name      string             `json:"name"`
	Digest    string             `json:"digest"`
	Layout    string             `json:"layout"`
	Platforms []manifestPlatform `json:"platforms"`
}

type manifestPlatform struct {
	Platform string `json:"platform"`
	// Digest is that of the platform's own manifest, Archive the file to load, Bytes the size of what
	// is pulled, and SBOM the list of what the binary was built from.
	Digest  string `json:"digest"`
	Bytes   int64  `json:"bytes"`
	Archive string `json:"archive"`
	SBOM    string `json:"sbom"`
}

// create writes a file and the folders that it is in.
func create(path string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	b := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(write(b), b.Flush(), f.Close())
}

func writeFile(path string, data []byte) error {
	return create(path, func(out io.Writer) error { _, err := out.Write(data); return err })
}

func writeJSON(path string, value any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return err
	}
	return writeFile(path, b.Bytes())
}

// writeSums writes the hashes of all files in a folder, in order of path.
func writeSums(dir string) error {
	var sums bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		sum, err := hashFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		fmt.Fprintf(&sums, "%s  %s\n", sum, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, sumsFile), sums.Bytes())
}

func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return hex.EncodeToString(sum.Sum(nil)), err
}
