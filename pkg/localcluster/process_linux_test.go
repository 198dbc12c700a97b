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
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestProcessesEndWithTheirLauncher: they end even if the launcher is killed.
func TestProcessesEndWithTheirLauncher(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "lock")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	launcher := exec.Command(self)
	launcher.Env = append(os.Environ(), "FAKE_LAUNCHER_LOCK="+lock, "FAKE_LAUNCHER_BIN="+fakeBinaries(t), "FAKE_LAUNCHER_DIR="+t.TempDir())
	output, err := launcher.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := launcher.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len(fakeLauncherReady))
	if _, err := output.Read(ready); err != nil || string(ready) != fakeLauncherReady {
		t.Errorf("the launcher says %q, %v", ready, err)
	}
	if err := launcher.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = launcher.Wait()

	file, err := os.OpenFile(lock, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	free := make(chan error, 1)
	go func() { free <- syscall.Flock(int(file.Fd()), syscall.LOCK_EX) }()
	select {
	case err := <-free:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("kwok still runs")
	}
}
