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
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ringmaster/hack/generated"
)

const (
	discoveryDir = "api/discovery"
	openAPIDir   = "api/openapi-spec"
	aggregated   = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// runAPI makes the OpenAPI and discovery files of the tree from what bin's kube-apiserver
// serves.
func runAPI(ctx context.Context, log *progress, dir, bin string) error {
	t, err := openTree(ctx, dir)
	if err != nil {
		return err
	}
	have, err := t.apiFiles()
	if err != nil {
		return err
	}
	server, err := relativeTo(t.dir, filepath.Join(bin, apiServer))
	if err != nil {
		return err
	}
	in := []string{server}
	if done, err := t.isDone("api", in, have); err != nil {
		return err
	} else if done {
		fmt.Fprintln(log.out, "codegen: the API has not changed")
		return nil
	}
	served, err := serve(ctx, log, bin)
	if err != nil {
		return err
	}
	written := 0
	made := slices.Sorted(maps.Keys(served))
	for _, name := range union(have, made) {
		old, err := t.read(name)
		if err != nil {
			return err
		}
		if bytes.Equal(old, served[name]) {
			continue
		}
		if err := t.write(name, served[name]); err != nil {
			return err
		}
		written++
	}
	fmt.Fprintf(log.out, "codegen: the API has %d files, %d were written now\n", len(made), written)
	return t.setDone("api", t, in, made)
}

// verifyAPI checks that bin's kube-apiserver serves exactly the tree's OpenAPI and discovery
// files, and that without the fork's additions those are upstream's, byte for byte.
func verifyAPI(ctx context.Context, log *progress, dir, bin string) error {
	t, err := openTree(ctx, dir)
	if err != nil {
		return err
	}
	have, err := t.apiFiles()
	if err != nil {
		return err
	}
	upstreams, err := t.upstreamAPI(ctx)
	if err != nil {
		return err
	}
	served, err := serve(ctx, log, bin)
	if err != nil {
		return err
	}
	var problems []string
	for _, name := range union(have, slices.Collect(maps.Keys(upstreams)), slices.Collect(maps.Keys(served))) {
		made, err := t.read(name)
		if err != nil {
			return err
		}
		if !bytes.Equal(made, served[name]) {
			problems = append(problems, name+" is not what the server serves: make build")
		}
		plain, err := withoutOurs(name, served[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !bytes.Equal(plain, upstreams[name]) {
			problems = append(problems, name+" differs from upstream's in more than hash keys and the group "+group)
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("of the API's files,\n  %s", strings.Join(problems, "\n  "))
	}
	fmt.Fprintf(log.out, "codegen: the API's %d files are as served; without hash keys and %s they are upstream's %d, byte for byte\n",
		len(served), group, len(upstreams))
	return nil
}

// union returns the sorted names of all lists.
func union(lists ...[]string) []string {
	names := slices.Concat(lists...)
	slices.Sort(names)
	return slices.Compact(names)
}

// relativeTo returns the path of a file relative to a folder.
func relativeTo(dir, file string) (string, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	return filepath.Rel(dir, file)
}

// apiFiles returns the OpenAPI and discovery files that the tree has, sorted.
func (t *tree) apiFiles() ([]string, error) {
	var names []string
	err := fs.WalkDir(os.DirFS(t.dir), "api", func(name string, _ fs.DirEntry, err error) error {
		if generated.IsAPI(name) {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// upstreamAPI returns upstream's OpenAPI and discovery files.
func (t *tree) upstreamAPI(ctx context.Context) (map[string][]byte, error) {
	list, err := output(ctx, t.dir, nil, "git", "ls-tree", "-r", "-z", "--name-only", t.base, discoveryDir, openAPIDir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, name := range splitNames(list) {
		if !generated.IsAPI(name) {
			continue
		}
		if files[name], err = output(ctx, t.dir, nil, "git", "show", t.base+":"+name); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// serve starts bin's kube-apiserver, and returns the files that upstream's
// hack/update-openapi-spec.sh makes of its answers, by their names in the tree.
func serve(ctx context.Context, log *progress, bin string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := log.step("OpenAPI and discovery of "+apiServer, func() error {
		return withServer(ctx, bin, func(get get) error {
			if err := fetch(get, files); err != nil {
				return fmt.Errorf("%s: %w", apiServer, err)
			}
			return nil
		})
	})
	return files, err
}

// get returns the answer of an API server to a request for a path, in a media type.
type get func(path, accept string) ([]byte, error)

func fetch(get get, files map[string][]byte) error {
	add := func(name, path, accept string) error {
		answer, err := get(path, accept)
		if err != nil {
			return err
		}
		if files[name], err = inUpstreamsForm(answer); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
	if err := add(discoveryDir+"/aggregated_v2.json", "/apis", aggregated); err != nil {
		return err
	}
	if err := add(openAPIDir+"/swagger.json", "/openapi/v2", ""); err != nil {
		return err
	}
	answer, err := get("/openapi/v3", "")
	if err != nil {
		return err
	}
	var root struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(answer, &root); err != nil {
		return fmt.Errorf("/openapi/v3: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(root.Paths)) {
		file := strings.ReplaceAll(path, "/", "__")
		if err := add(openAPIDir+"/v3/"+file+"_openapi.json", "/openapi/v3/"+path, ""); err != nil {
			return err
		}
		if strings.HasPrefix(path, "api") {
			if err := add(discoveryDir+"/"+file+".json", "/"+path, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// inUpstreamsForm returns JSON as upstream's script writes it: with sorted keys, and no
// version of the server.
func inUpstreamsForm(answer []byte) ([]byte, error) {
	value, err := decode(answer)
	if err != nil {
		return nil, err
	}
	if object, ok := value.(map[string]any); ok {
		if info, ok := object["info"].(map[string]any); ok {
			info["version"] = "unversioned"
		}
	}
	return encode(value)
}

func decode(data []byte) (value any, err error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}

func encode(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(value)
	return out.Bytes(), err
}

// group is the API group that the fork adds.
const group = "sharding.k8s.io"

// withoutOurs returns a file without hash keys and the group, nil if it is about the group.
func withoutOurs(name string, data []byte) ([]byte, error) {
	if data == nil || strings.Contains(path.Base(name), group) {
		return nil, nil
	}
	value, err := decode(data)
	if err != nil {
		return nil, err
	}
	return encode(prune(value))
}

// prune removes hash keys, and the group's paths, types and entries in lists of groups.
func prune(value any) any {
	switch value := value.(type) {
	case map[string]any:
		maps.DeleteFunc(value, func(key string, _ any) bool {
			return key == "hashKey" || strings.HasPrefix(key, "/apis/"+group+"/") || strings.HasPrefix(key, "io.k8s.api.sharding.")
		})
		for key := range value {
			value[key] = prune(value[key])
		}
	case []any:
		value = slices.DeleteFunc(value, func(element any) bool {
			object, _ := element.(map[string]any)
			meta, _ := object["metadata"].(map[string]any)
			return object["group"] == group || object["name"] == group || meta["name"] == group
		})
		for i := range value {
			value[i] = prune(value[i])
		}
		return value
	}
	return value
}
