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
	"path/filepath"

	"golang.org/x/sync/errgroup"
)

// sides are clusters that are treated alike, at the same time.
type sides []*side

// start starts clusters, stock's or ours, without controller managers.
func (b *benchmark) start(ctx context.Context, section, settings string, stocks ...bool) (sides, error) {
	all := make(sides, len(stocks))
	group, starting := errgroup.WithContext(ctx)
	for i, stock := range stocks {
		group.Go(func() (err error) {
			all[i], err = startSide(starting, b.bin, filepath.Join(b.dir, section), settings, stock)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		all.end()
		return nil, err
	}
	return all, nil
}

// each calls f with all sides at the same time.
func (all sides) each(ctx context.Context, f func(context.Context, *side) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range all {
		group.Go(func() error { return f(ctx, s) })
	}
	return group.Wait()
}

func (all sides) end() {
	for _, s := range all {
		if s != nil {
			s.end()
		}
	}
}
