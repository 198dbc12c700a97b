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

// Package protoc compiles protobuf files and passes them to a code generator. It supports
// the part of protoc's command line that go-to-protobuf uses:
//
//	protoc -I DIR... --NAME_out=[PARAMETER:]DIR FILE...
//
// A FILE is a path on disk below one of the import folders. The generator is
// protoc-gen-NAME on PATH.
package protoc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/pluginpb"
)

// Run does what protoc does with these arguments.
func Run(args []string) error {
	inv, err := parse(args)
	if err != nil {
		return err
	}
	request, err := inv.compile()
	if err != nil {
		return err
	}
	return inv.generate(request)
}

// invocation is a parsed command line.
type invocation struct {
	importDirs []string
	plugin     string // NAME of protoc-gen-NAME
	parameter  string // passed to the plugin unchanged
	outDir     string
	files      []string // as named on the command line
}

var outFlag = regexp.MustCompile(`^--([a-z]+)_out=(?:(.*):)?(.+)$`)

func parse(args []string) (*invocation, error) {
	inv := &invocation{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "-I":
			if i++; i == len(args) {
				return nil, errors.New("-I needs a folder")
			}
			inv.importDirs = append(inv.importDirs, args[i])
		case strings.HasPrefix(arg, "-I"):
			inv.importDirs = append(inv.importDirs, arg[len("-I"):])
		case strings.HasPrefix(arg, "--proto_path="):
			inv.importDirs = append(inv.importDirs, arg[len("--proto_path="):])
		case outFlag.MatchString(arg):
			if inv.plugin != "" {
				return nil, fmt.Errorf("%s: only one --NAME_out is supported", arg)
			}
			m := outFlag.FindStringSubmatch(arg)
			inv.plugin, inv.parameter, inv.outDir = m[1], m[2], m[3]
		case strings.HasPrefix(arg, "-"):
			return nil, fmt.Errorf("%s: this flag is not supported", arg)
		default:
			inv.files = append(inv.files, arg)
		}
	}
	if inv.plugin == "" {
		return nil, errors.New("--NAME_out is missing")
	}
	if len(inv.files) == 0 {
		return nil, errors.New("no input file")
	}
	return inv, nil
}

// importName returns the name by which other files import file: its path relative to the
// first import folder that contains it.
func (inv *invocation) importName(file string) (string, error) {
	for _, dir := range inv.importDirs {
		if filepath.IsAbs(dir) != filepath.IsAbs(file) {
			continue
		}
		if name, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(name) {
			return filepath.ToSlash(name), nil
		}
	}
	return "", fmt.Errorf("%s is in none of the import folders %q", file, inv.importDirs)
}

// compile returns the request for the plugin.
func (inv *invocation) compile() (*pluginpb.CodeGeneratorRequest, error) {
	request := &pluginpb.CodeGeneratorRequest{}
	if inv.parameter != "" {
		request.Parameter = proto.String(inv.parameter)
	}
	for _, file := range inv.files {
		name, err := inv.importName(file)
		if err != nil {
			return nil, err
		}
		request.FileToGenerate = append(request.FileToGenerate, name)
	}

	compiler := protocompile.Compiler{
		Resolver: &protocompile.SourceResolver{ImportPaths: inv.importDirs},
		// Comments become comments of the generated code.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), request.FileToGenerate...)
	if err != nil {
		return nil, err
	}

	// Plugins expect each file after those that it imports.
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		request.ProtoFile = append(request.ProtoFile, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range files {
		add(file)
	}
	return request, nil
}

// generate runs the plugin, and writes the files of its response.
func (inv *invocation) generate(request *pluginpb.CodeGeneratorRequest) error {
	in, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	name := "protoc-gen-" + inv.plugin
	cmd := exec.Command(name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(out.Bytes(), response); err != nil {
		return fmt.Errorf("response of %s: %w", name, err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s: %s", name, response.GetError())
	}
	for _, file := range response.File {
		if file.GetInsertionPoint() != "" || !filepath.IsLocal(file.GetName()) {
			return fmt.Errorf("%s: cannot write %q (insertion point %q)", name, file.GetName(), file.GetInsertionPoint())
		}
		path := filepath.Join(inv.outDir, file.GetName())
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o666); err != nil {
			return err
		}
	}
	return nil
}
