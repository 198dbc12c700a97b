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

// Program openapi-gen is upstream's generator of that name, with one addition: a number with a
// method OpenAPISchemaType is text in JSON. Upstream's generator heeds that method in structs
// alone, and would describe the number by its kind in Go.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/gengo/v2/types"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

func main() {
	if err := generate(); err != nil {
		fmt.Fprintln(os.Stderr, "openapi-gen:", err)
		os.Exit(1)
	}
}

func generate() error {
	flags := args.New()
	flags.AddFlags(pflag.CommandLine)
	pflag.Parse()
	if err := flags.Validate(); err != nil {
		return err
	}
	header, err := gengo.GoBoilerplate(flags.GoHeaderFile, gengo.StdBuildTag, gengo.StdGeneratedBy)
	if err != nil {
		return err
	}
	execute := func(targets func(*generator.Context, *args.Args, []byte) []generator.Target) error {
		return gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), func(c *generator.Context) []generator.Target {
			describeText(c.Universe)
			return targets(c, flags, header)
		}, gengo.StdBuildTag, pflag.Args())
	}
	if flags.OutputModelNameFile != "" {
		if err := execute(generators.GetModelNameTargets); err != nil {
			return err
		}
	}
	return execute(generators.GetOpenAPITargets)
}

// describeText has the numbers that are text in JSON described as text.
func describeText(universe types.Universe) {
	for _, pkg := range universe {
		for _, t := range pkg.Types {
			if _, ok := t.Methods["OpenAPISchemaType"]; ok && t.Kind == types.Alias && types.IsInteger(t.Underlying) {
				t.Underlying = types.String
			}
		}
	}
}
