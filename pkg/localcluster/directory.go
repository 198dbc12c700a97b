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

package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// launcherPID marks a directory as a cluster's. The file holds the pid of the process
// that runs the cluster, which keeps it locked.
const launcherPID = "launcher.pid"

// adminKubeconfig is a cluster's kubeconfig for a member of system:masters.
const adminKubeconfig = "kubeconfig"

// ErrRunning means that a directory belongs to a running cluster.
var ErrRunning = errors.New("a cluster is running here")

// ErrNotRunning means that no cluster runs in a directory.
var ErrNotRunning = errors.New("no cluster is running here")

// directory is the directory of one cluster.
type directory struct {
	path string
	// temporary means that it ends with the cluster.
	temporary bool
	// lock is held while the cluster runs. The kernel releases it when the process ends,
	// so unlike a pid it cannot belong to another process by then.
	lock *os.File
}

// claimDirectory prepares the directory for a new cluster, and deletes the files of an
// earlier one. It fails with ErrRunning if the earlier cluster still runs, and also if
// the directory holds files that no cluster put there. "" makes a temporary one.
func claimDirectory(path string) (_ *directory, err error) {
	temporary := path == ""
	if temporary {
		path, err = os.MkdirTemp("", "cluster-")
	} else {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	marker := filepath.Join(path, launcherPID)
	if _, err := os.Stat(marker); len(entries) > 0 && err != nil {
		return nil, fmt.Errorf("%s holds files (such as %s) and was not made for a cluster: choose an empty directory", path, entries[0].Name())
	}
	lock, err := os.OpenFile(marker, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		lock.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", marker, err)
		}
		pid, err := readPID(marker)
		if err != nil {
			return nil, fmt.Errorf("%w, in %s: %w", ErrRunning, path, err)
		}
		return nil, fmt.Errorf("%w, in %s, started by process %d", ErrRunning, path, pid)
	}
	d := &directory{path: path, temporary: temporary, lock: lock}
	if err := d.prepare(entries); err != nil {
		return nil, errors.Join(err, d.release())
	}
	return d, nil
}

func (d *directory) prepare(old []os.DirEntry) error {
	for _, entry := range old {
		if name := entry.Name(); name != launcherPID && (filepath.Ext(name) == ".pid" || name == adminKubeconfig) {
			if err := os.Remove(filepath.Join(d.path, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"etcd", "kubeconfigs", "logs", "pki"} {
		dir := filepath.Join(d.path, name)
		if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
			return err
		}
	}
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err := d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release unlocks the directory. Its files stay for inspection, unless it is temporary.
func (d *directory) release() error {
	err := d.lock.Close()
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.path))
	}
	return err
}

func (d *directory) adminKubeconfig() string { return filepath.Join(d.path, adminKubeconfig) }
func (d *directory) kubeconfig(name string) string {
	return filepath.Join(d.path, "kubeconfigs", name+".kubeconfig")
}
func (d *directory) log(name string) string { return filepath.Join(d.path, "logs", name+".log") }
func (d *directory) pid(name string) string { return filepath.Join(d.path, name+".pid") }

// LauncherPID returns the pid of the process that runs the cluster in the directory,
// or ErrNotRunning if no cluster runs there.
func LauncherPID(dir string) (int, error) {
	marker := filepath.Join(dir, launcherPID)
	lock, err := os.Open(marker)
	if errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("%w, in %s", ErrNotRunning, dir)
	}
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return 0, fmt.Errorf("%w, in %s", ErrNotRunning, dir)
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return 0, fmt.Errorf("lock %s: %w", marker, err)
	}
	return readPID(marker)
}

func readPID(file string) (int, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("%s holds no pid: %w", file, err)
	}
	return pid, nil
}
