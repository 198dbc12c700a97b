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
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	goversion "go/version"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// The places of upstream's modules in its tree: the main module at the root, and those
// released with it in the staging folder.
const (
	mainModule    = "k8s.io/kubernetes"
	stagingFolder = "staging/src/"
)

// upstream is a version of upstream: Kubernetes and the modules released with it.
type upstream struct {
	version string
	modules []module
	root    string // the folder with go.sum
	// notServed are modules that could not be had. Only another version than the pinned one may
	// lack any.
	notServed []module
}

type module struct {
	path, version string
	sum           string // as in go.sum: the hash of its files
	at            string // the module's folder in the tree, ending in a slash, or empty for the root
	dir           string // its folder in the module cache, set by download
	failed        error  // why it could not be downloaded
}

// pinned returns the version that go.mod requires, with the sums of go.sum.
func pinned(root string) (*upstream, error) {
	cmd := exec.Command("go", "mod", "edit", "-json")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go mod edit -json: %w", withStderr(err))
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		return nil, err
	}
	u := &upstream{root: root}
	for _, r := range mod.Require {
		if r.Path == mainModule {
			u.version = r.Version
		}
	}
	if u.version == "" {
		return nil, fmt.Errorf("go.mod does not require %s", mainModule)
	}
	released, err := stagingVersion(u.version)
	if err != nil {
		return nil, err
	}
	for _, r := range mod.Require {
		// A module whose patch release is not served stays at an earlier one.
		same := semver.MajorMinor(r.Version) == semver.MajorMinor(released)
		if r.Path == mainModule || strings.HasPrefix(r.Path, "k8s.io/") && same {
			u.modules = append(u.modules, newModule(r.Path, r.Version))
		}
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, err
	}
	for i := range u.modules {
		m := &u.modules[i]
		_, after, found := strings.Cut("\n"+string(sums), "\n"+m.path+" "+m.version+" ")
		if !found {
			return nil, fmt.Errorf("go.sum has no sum of %s %s: run go mod tidy", m.path, m.version)
		}
		m.sum, _, _ = strings.Cut(after, "\n")
	}
	return u, nil
}

func newModule(path, version string) module {
	m := module{path: path, version: version}
	if path != mainModule {
		m.at = stagingFolder + path + "/"
	}
	return m
}

// stagingVersion returns the version of the modules released with a version of Kubernetes,
// such as v0.37.2 for v1.37.2.
func stagingVersion(version string) (string, error) {
	rest, found := strings.CutPrefix(version, "v1.")
	if !found || semver.Canonical(version) != version {
		return "", fmt.Errorf("%q is not a version of Kubernetes, such as v1.37.2", version)
	}
	return "v0." + rest, nil
}

// key identifies upstream's content. It differs if any byte does.
func (u *upstream) key() string {
	sum := sha256.New()
	for _, m := range u.modules {
		fmt.Fprintln(sum, m.path, m.version, m.sum)
	}
	for _, path := range sorted(links) {
		fmt.Fprintln(sum, path, links[path])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// released returns another version of upstream. go.sum does not have the hashes of its modules; the
// checksum database does. Modules that hold one of the given files must be there. Of the others,
// those that cannot be had are named in notServed.
func released(of string, paths []string) (*upstream, error) {
	staging, err := stagingVersion(of)
	if err != nil {
		return nil, err
	}
	root, err := os.MkdirTemp("", "forktree-")
	if err != nil {
		return nil, err
	}
	defer os.Remove(root)
	u := &upstream{version: of, root: root, modules: []module{newModule(mainModule, of)}}
	if err := u.useToolchain(); err != nil {
		return nil, err
	}
	if err := u.fetch(); err != nil {
		return nil, err
	}
	modules, err := u.workspace()
	if err != nil {
		return nil, err
	}
	for _, path := range modules {
		u.modules = append(u.modules, newModule(path, staging))
	}
	fetchErr := u.fetch()
	if !slices.ContainsFunc(u.modules, func(m module) bool { return m.failed != nil }) {
		return u, fetchErr
	}
	u.modules = slices.DeleteFunc(u.modules, func(m module) bool {
		if m.failed == nil {
			return false
		}
		if slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(path, m.at) }) {
			err = errors.Join(err, m.failed)
		}
		u.notServed = append(u.notServed, m)
		return true
	})
	return u, err
}

// useToolchain has all go commands from now on use a newer Go, if this version of upstream needs
// one.
func (u *upstream) useToolchain() error {
	m := u.modules[0]
	cmd := exec.Command("go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Dir = u.root
	out, err := cmd.Output() // an error if Go is too old
	var got struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.GoMod == "" {
		return fmt.Errorf("go mod download %s %s: %w", m.path, m.version, errors.Join(withStderr(err), jsonErr, errors.New(got.Error)))
	}
	data, err := os.ReadFile(got.GoMod)
	if err != nil {
		return err
	}
	mod, err := modfile.ParseLax(got.GoMod, data, nil)
	if err != nil || mod.Go == nil {
		return err
	}
	out, err = exec.Command("go", "env", "GOVERSION").Output()
	if err != nil {
		return fmt.Errorf("go env: %w", withStderr(err))
	}
	if needs := "go" + mod.Go.Version; goversion.Compare(strings.TrimSpace(string(out)), needs) < 0 {
		return os.Setenv("GOTOOLCHAIN", needs)
	}
	return nil
}

// download downloads the modules into the module cache, and checks that none is missing.
func (u *upstream) download() error {
	if err := u.fetch(); err != nil {
		return err
	}
	paths, err := u.workspace()
	if err != nil {
		return err
	}
	for _, path := range paths {
		is := func(m module) bool { return m.path == path }
		if !slices.ContainsFunc(u.modules, is) && !slices.ContainsFunc(u.notServed, is) {
			return fmt.Errorf("upstream's workspace uses %s, which go.mod does not pin: import it in hack/pins, and run go mod tidy", path)
		}
	}
	return nil
}

// fetch downloads the modules that are not known to be in the module cache. The go command
// compares them with go.sum, or with the checksum database if go.sum does not have them.
func (u *upstream) fetch() error {
	args := []string{"mod", "download", "-json"}
	missing := map[string]*module{}
	for i := range u.modules {
		if m := &u.modules[i]; m.dir == "" {
			args = append(args, m.path+"@"+m.version)
			missing[m.path] = m
		}
	}
	if len(missing) == 0 {
		return nil
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = u.root
	out, runErr := cmd.Output()
	answers := json.NewDecoder(bytes.NewReader(out))
	var failed []error
	for range missing {
		var got struct{ Path, Dir, Sum, Error string }
		if err := answers.Decode(&got); err != nil {
			return fmt.Errorf("go mod download: %w", errors.Join(withStderr(runErr), err))
		}
		m := missing[got.Path]
		if m == nil {
			return fmt.Errorf("go mod download %s: %s", got.Path, got.Error)
		}
		if got.Error != "" {
			m.failed = fmt.Errorf("go mod download %s: %s", got.Path, got.Error)
			failed = append(failed, m.failed)
			continue
		}
		if m.sum == "" {
			m.sum = got.Sum
		}
		if m.sum != got.Sum {
			return fmt.Errorf("%s %s: its sum is %s, go.sum has %s", m.path, m.version, got.Sum, m.sum)
		}
		m.dir = got.Dir
	}
	if len(failed) == 0 && runErr != nil {
		return fmt.Errorf("go mod download: %w", withStderr(runErr))
	}
	return errors.Join(failed...)
}

// workspace returns the modules that upstream's go.work uses from the staging folder.
func (u *upstream) workspace() ([]string, error) {
	work, err := u.read("go.work")
	if err != nil {
		return nil, err
	}
	if work == nil {
		return nil, fmt.Errorf("upstream %s has no go.work: forktree does not know how it is laid out", u.version)
	}
	var paths []string
	for line := range strings.Lines(string(work.data)) {
		if path, found := strings.CutPrefix(strings.TrimSpace(line), "./"+stagingFolder); found {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// read returns a file by its path in the tree, or nil if upstream has no such file.
func (u *upstream) read(path string) (*file, error) {
	f, err := readFile(u.place(path))
	if f != nil {
		f.exec = isScript(f)
	}
	return f, err
}

// place returns where a file of the tree is in the module cache, if it is there.
func (u *upstream) place(path string) string {
	m := u.modules[slices.IndexFunc(u.modules, func(m module) bool { return m.path == mainModule })]
	for _, other := range u.modules {
		if other.at != "" && strings.HasPrefix(path+"/", other.at) {
			m = other
		}
	}
	return filepath.Join(m.dir, strings.TrimPrefix(path+"/", m.at))
}

// Open opens a file or a folder by its path in the tree. So an upstream is a fs.FS.
func (u *upstream) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return os.Open(u.place(name))
}

// isScript reports whether upstream's file is executable, which modules do not record.
func isScript(f *file) bool {
	return bytes.HasPrefix(f.data, []byte("#!"))
}

// files yields all files by their path in the tree. A module that is not served has a go.mod alone,
// as the workspace uses it. It also hashes each module's files, and sets failed if a hash is not
// the pinned one.
func (u *upstream) files(failed *error) iter.Seq2[string, *file] {
	return func(yield func(string, *file) bool) {
		for _, m := range u.notServed {
			if !yield(m.at+"go.mod", &file{data: []byte("module " + m.path + "\n")}) {
				return
			}
		}
		for _, m := range u.modules {
			sums := map[string]string{}
			stopped := false
			err := filepath.WalkDir(m.dir, func(at string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				f, err := readFile(at)
				if err != nil {
					return err
				}
				path := filepath.ToSlash(strings.TrimPrefix(at, m.dir+string(filepath.Separator)))
				sum := sha256.Sum256(f.data)
				sums[path] = hex.EncodeToString(sum[:])
				f.exec = isScript(f)
				if !yield(m.at+path, f) {
					stopped = true
					return fs.SkipAll
				}
				return nil
			})
			if err == nil && !stopped && m.hash(sums) != m.sum {
				err = fmt.Errorf("%s was changed: its files hash to %s, not to %s: delete it (go clean -modcache does, with all others), and try again", m.dir, m.hash(sums), m.sum)
			}
			if err != nil || stopped {
				*failed = err
				return
			}
			if m.path == mainModule {
				for path, link := range linksIn(m.dir) {
					if !yield(path, link) {
						return
					}
				}
			}
		}
	}
}

// hash returns the go command's "h1" hash of a module with these files, as defined in
// golang.org/x/mod/sumdb/dirhash.
func (m *module) hash(sums map[string]string) string {
	all := sha256.New()
	for _, path := range sorted(sums) {
		fmt.Fprintf(all, "%s  %s@%s/%s\n", sums[path], m.path, m.version, path)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(all.Sum(nil))
}

// withStderr adds the standard error of a command to its error.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(exit.Stderr))
	}
	return err
}
