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
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMain makes the test binary stand in for the components. Run under the name of
// one, it serves only what a cluster requests from that component. Further flags:
//
//	--fake-die       print a line and exit with status 3 at once
//	--fake-deaf      do not end on SIGTERM
//	--fake-lock=F    hold a lock on the file F as long as it lives
//
// A GET request for /die ends it with status 3. Each SIGTERM appends its name to the
// file that the environment variable FAKE_ENDS names.
func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	for _, kind := range []Component{Etcd, KubeAPIServer, KubeControllerManager, KubeScheduler, Kwok} {
		if name == string(kind) {
			runFake(name)
		}
	}
	if lock := os.Getenv("FAKE_LAUNCHER_LOCK"); lock != "" {
		runFakeLauncher(lock)
	}
	os.Exit(m.Run())
}

const fakeLauncherReady = "ready"

// runFakeLauncher starts a cluster whose kwok holds the lock, prints that it has, and
// runs until it is killed.
func runFakeLauncher(lock string) {
	_, err := Start(context.Background(), Config{
		BinDir: os.Getenv("FAKE_LAUNCHER_BIN"),
		Dir:    os.Getenv("FAKE_LAUNCHER_DIR"),
		Args:   map[Component][]string{Kwok: {"--fake-lock=" + lock}},
	})
	must(err)
	fmt.Print(fakeLauncherReady)
	select {}
}

func runFake(name string) {
	flags := map[string]string{}
	for _, arg := range os.Args[1:] {
		flag, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flags[flag] = value
	}
	has := func(flag string) bool { _, ok := flags[flag]; return ok }

	fmt.Println("fake", name, "begins")
	if has("fake-die") {
		fmt.Println("fake", name, "has no way to go on")
		os.Exit(3)
	}
	if file := flags["fake-lock"]; file != "" {
		lock, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
		must(err)
		must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	}

	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	go func() {
		for range terminated {
			if file := os.Getenv("FAKE_ENDS"); file != "" {
				ends, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
				must(err)
				_, err = fmt.Fprintln(ends, name)
				must(err)
			}
			if !has("fake-deaf") {
				os.Exit(0)
			}
		}
	}()

	handler := http.NewServeMux()
	handler.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, name) })
	handler.HandleFunc("/die", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	var err error
	switch {
	case has("listen-client-urls"):
		listen, parseErr := url.Parse(flags["listen-client-urls"])
		must(parseErr)
		err = http.ListenAndServe(listen.Host, handler)
	case has("server-address"):
		err = http.ListenAndServe(flags["server-address"], handler)
	default:
		err = http.ListenAndServeTLS(flags["bind-address"]+":"+flags["secure-port"], flags["tls-cert-file"], flags["tls-private-key-file"], handler)
	}
	must(err)
}

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(4)
	}
}

// fakeBinaries returns a directory with a fake of each component, and the file with
// kwok's stages beside it.
func fakeBinaries(t *testing.T) string {
	t.Helper()
	output := t.TempDir()
	dir := filepath.Join(output, "bin")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(output, "kwok"), 0o700)); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Component{Etcd, KubeAPIServer, KubeControllerManager, KubeScheduler, Kwok} {
		if err := os.Symlink(self, filepath.Join(dir, string(kind))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(output, "kwok", "stages.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
