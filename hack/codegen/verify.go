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
	"context"
	"fmt"
	"strings"
)

// model has folders that need every generator.
var model = []string{
	metaV1,
	api + "coordination/v1",
	api + "lifecycle/v1alpha1",
	"pkg/apis/coordination",
	"pkg/apis/coordination/v1",
	"pkg/apis/lifecycle",
	"pkg/apis/lifecycle/v1alpha1",
}

// runVerify runs every generator over upstream's sources, on all packages that the tree's
// changes affect. It fails unless the output equals upstream's files.
func runVerify(ctx context.Context, log *progress, dir string) error {
	t, err := openTree(ctx, dir)
	if err != nil {
		return err
	}
	changed, err := t.changed(ctx)
	if err != nil {
		return err
	}
	return t.inWorkspace(ctx, log, func(w *workspace) error {
		g, err := newGeneration(ctx, w, log)
		if err != nil {
			return err
		}
		dirs := sourceDirs(changed)
		for _, dir := range model {
			dirs[dir] = true
		}
		if err := g.run(ctx, dirs, true); err != nil {
			return err
		}
		different, err := w.made(ctx)
		if err != nil {
			return err
		}
		if len(different) > 0 {
			return fmt.Errorf("over upstream's sources, the generators change %d files:\n  %s", len(different), strings.Join(different, "\n  "))
		}
		fmt.Fprintln(log.out, "codegen: all came out as upstream's, byte for byte")
		return nil
	})
}
