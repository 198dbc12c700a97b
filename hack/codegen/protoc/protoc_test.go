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

package protoc

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/pluginpb"
)

// The test binary is also a plugin, whose response lists what it was given.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "protoc-gen-list" {
		os.Exit(m.Run())
	}
	if err := list(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func list() error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{}
	if err := proto.Unmarshal(in, request); err != nil {
		return err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if request.GetParameter() == "fail" {
		response.Error = proto.String("asked to fail")
	}
	var text strings.Builder
	for _, file := range request.ProtoFile {
		fmt.Fprintln(&text, file.GetName())
		for _, location := range file.GetSourceCodeInfo().GetLocation() {
			if location.LeadingComments != nil {
				fmt.Fprintf(&text, " %s\n", strings.TrimSpace(location.GetLeadingComments()))
			}
		}
	}
	for _, name := range request.FileToGenerate {
		response.File = append(response.File, &pluginpb.CodeGeneratorResponse_File{
			Name:    proto.String(strings.TrimSuffix(name, ".proto") + ".txt"),
			Content: proto.String(text.String()),
		})
	}
	out, err := proto.Marshal(response)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(out)
	return err
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want *invocation
		err  string
	}{
		"as go-to-protobuf calls it": {
			args: []string{"-I", ".", "-I", "/src", "--gogo_out=/out", "/src/a/a.proto"},
			want: &invocation{importDirs: []string{".", "/src"}, plugin: "gogo", outDir: "/out", files: []string{"/src/a/a.proto"}},
		},
		"other forms": {
			args: []string{"-I/src", "--proto_path=/more", "--gogo_out=x=y,z:/out", "a.proto", "b.proto"},
			want: &invocation{importDirs: []string{"/src", "/more"}, plugin: "gogo", parameter: "x=y,z", outDir: "/out", files: []string{"a.proto", "b.proto"}},
		},
		"no folder":     {args: []string{"--gogo_out=/out", "a.proto", "-I"}, err: "-I needs a folder"},
		"no plugin":     {args: []string{"-I", ".", "a.proto"}, err: "--NAME_out is missing"},
		"two plugins":   {args: []string{"--gogo_out=/out", "--go_out=/out", "a.proto"}, err: "only one"},
		"no file":       {args: []string{"--gogo_out=/out"}, err: "no input file"},
		"unknown flag":  {args: []string{"--gogo_out=/out", "--fatal_warnings", "a.proto"}, err: "--fatal_warnings: this flag is not supported"},
		"empty command": {err: "--NAME_out is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse(test.args)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got error %v, want one with %q", err, test.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	src, out, bin := t.TempDir(), t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"example/a/a.proto": "syntax = \"proto2\";\npackage a;\nimport \"example/b/b.proto\";\n// A is first.\nmessage A { optional b.B b = 1; }\n",
		"example/b/b.proto": "syntax = \"proto2\";\npackage b;\n// B is imported.\nmessage B {}\n",
		"bad.proto":         "syntax = \"proto2\";\nmessage A { optional Missing m = 1; }\n",
	} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(bin, "protoc-gen-list")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)

	if err := Run([]string{"-I", ".", "-I", src, "--list_out=" + out, filepath.Join(src, "example/a/a.proto")}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(out, "example/a/a.txt"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "example/b/b.proto\n B is imported.\nexample/a/a.proto\n A is first.\n"
	if string(got) != want {
		t.Errorf("the plugin saw\n%swant\n%s", got, want)
	}

	for name, test := range map[string]struct{ out, file, err string }{
		"error in the source":   {"--list_out=" + out, filepath.Join(src, "bad.proto"), "Missing"},
		"plugin refuses":        {"--list_out=fail:" + out, filepath.Join(src, "example/b/b.proto"), "asked to fail"},
		"no such plugin":        {"--other_out=" + out, filepath.Join(src, "example/b/b.proto"), "protoc-gen-other"},
		"outside import folder": {"--list_out=" + out, filepath.Join(out, "c.proto"), "none of the import folders"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Run([]string{"-I", src, test.out, test.file})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got error %v, want one with %q", err, test.err)
			}
		})
	}
}
