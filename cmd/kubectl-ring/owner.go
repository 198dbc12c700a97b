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
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/ring"
	"k8s.io/kubernetes/cmd/kubectl-ring/cluster"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/ringtable"
)

func newOwnerCommand() *cobra.Command {
	flags := genericclioptions.NewConfigFlags(true)
	return cluster.Command(flags, &cobra.Command{
		Use:   "owner KIND/NAME",
		Short: "Say which instances work on an object, and why",
		Long: `Say for each ring whose controllers work on an object, or on what it belongs to, which hash key decides
who does, and which instance owns that key; in which phase it is, and since when; and whether its gate is
open for that key, and its controllers work. An instance that has died looks alive until its record is
gone: after two to three seconds by default, 15 where presences are off.`,
		Example: `  # Who makes the pods of a ReplicaSet
  kubectl ring owner replicaset/web-5d4f -n shop`,
		Args: cobra.RangeArgs(1, 2),
	}, func(ctx context.Context, s *cluster.Session) error {
		namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
		if err != nil {
			return err
		}
		infos, err := resource.NewBuilder(flags).Unstructured().NamespaceParam(namespace).DefaultNamespace().
			ResourceTypeOrNameArgs(false, s.Args...).SingleResourceType().Latest().Flatten().Do().Infos()
		if err != nil {
			return err
		}
		if len(infos) != 1 {
			return fmt.Errorf("got %d objects, want one: KIND/NAME", len(infos))
		}
		mapper, err := flags.ToRESTMapper()
		if err != nil {
			return err
		}
		object, ok := infos[0].Object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("%s is a %T, want one object", s.Args[0], infos[0].Object)
		}
		return owner(ctx, s.Client, mapper, object, infos[0].Mapping.Resource.GroupResource(), s.Out)
	})
}

// owner prints which instances work on the object.
func owner(ctx context.Context, client kubernetes.Interface, mapper meta.RESTMapper, object *unstructured.Unstructured, of schema.GroupResource, out io.Writer) error {
	rings, err := ringtable.List(ctx, client)
	if err != nil {
		return err
	}
	controlledBy, err := resourceOfController(mapper, object)
	if err != nil {
		return err
	}
	var claims []claim
	for _, r := range rings {
		claims = append(claims, claimsOf(r, object, of, controlledBy)...)
	}
	name := of.String() + " " + object.GetName()
	if object.GetNamespace() != "" {
		name += " in namespace " + object.GetNamespace()
	}
	name = ring.Printable(name)
	if len(claims) == 0 {
		fmt.Fprintf(out, "No ring works on %s: what else does runs on the leader.\n", name)
		return nil
	}
	fmt.Fprintf(out, "%s:\n", name)
	w := printers.GetNewTabWriter(out)
	fmt.Fprintln(w, "RING\tKEY\tOF\tINSTANCE\tHOST\tPHASE\tSINCE\tGATE\tCONTROLLERS")
	for _, c := range claims {
		instance, host, phase, since := "<none>", "<none>", "-", "-"
		if c.owner != nil {
			instance, host = c.owner.Name, c.owner.Host()
			phase, since = cmp.Or(string(c.owner.Phase), "-"), c.owner.Since(time.Now())
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", c.ring.Name, hashkey.Format(c.key), whose(c.by), instance, host, phase, since, c.gate(), strings.Join(c.controllers, ","))
	}
	return w.Flush()
}

// claim is the part that an instance has in an object, by one of its hash keys.
type claim struct {
	ring *ringtable.Ring
	by   shardingv1alpha1.GoverningKey
	key  int64
	// owner owns the key, nil: nobody does.
	owner       *ringtable.Instance
	controllers []string
}

// whose says whose key governs, for people.
func whose(by shardingv1alpha1.GoverningKey) string {
	if by == shardingv1alpha1.GoverningKeyOwn {
		return "itself"
	}
	return strings.ToLower(string(by))
}

// claimsOf returns the parts of a ring's instances in the object, by what their records say governs
// what their controllers write; on a ring without instances, by the catalogue. Of controllers that
// this program knows only those count that work on the object, or on what controls it.
func claimsOf(r *ringtable.Ring, object *unstructured.Unstructured, of, controlledBy schema.GroupResource) []claim {
	described, _ := catalogue.RingNamed(r.Name)
	// Instances of different versions may list different controllers.
	lines := map[string][]shardingv1alpha1.Governs{}
	for _, i := range r.Instances {
		for _, name := range i.Controllers {
			lines[name] = i.Governs
		}
	}
	if len(r.Instances) == 0 {
		for _, name := range described.ControllerNames() {
			lines[name] = described.Governs()
		}
	}
	var claims []claim
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		by, covered := ring.Governing(lines[name], name, of.Group, of.Resource)
		if i := slices.IndexFunc(described.Controllers, func(c catalogue.Controller) bool { return c.Name == name }); i >= 0 {
			covered = covered && isFor(described.Controllers[i], by, of, controlledBy)
		}
		key, found := keyOf(by, object)
		if !covered || !found {
			continue
		}
		if i := slices.IndexFunc(claims, func(c claim) bool { return c.by == by }); i >= 0 {
			claims[i].controllers = append(claims[i].controllers, name)
			continue
		}
		c := claim{ring: r, by: by, key: key, controllers: []string{name}}
		for i := range r.Instances {
			if r.Instances[i].Owned.Contains(key) {
				c.owner = &r.Instances[i]
			}
		}
		claims = append(claims, c)
	}
	return claims
}

// isFor says whether an object of that resource, and with such a controller, is one that c works
// on.
func isFor(c catalogue.Controller, by shardingv1alpha1.GoverningKey, of, controlledBy schema.GroupResource) bool {
	switch by {
	case shardingv1alpha1.GoverningKeyOwn:
		return c.Workloads == of
	case shardingv1alpha1.GoverningKeyController:
		return c.Workloads == of || c.Workloads == controlledBy
	case shardingv1alpha1.GoverningKeyHome:
		// One whose controller is gone may have to be finished.
		return c.Workloads == of || c.Workloads == controlledBy || controlledBy.Empty()
	case shardingv1alpha1.GoverningKeyNamespace:
		return c.PathOf(of) != ""
	default:
		return true
	}
}

// keyOf returns the governing key of the object, and whether it has one.
func keyOf(by shardingv1alpha1.GoverningKey, object *unstructured.Unstructured) (int64, bool) {
	keys, _ := sharding.KeysOf(object) // it has metadata
	governing, n := sharding.Governing(string(by), keys, sharding.Keys{})
	return governing[0], n > 0
}

// gate says whether the owner works on the key, and if not, why not.
func (c *claim) gate() string {
	switch {
	case len(c.ring.Instances) == 0:
		return "shut, unless the leader works on it: no instance is on the ring"
	case c.owner == nil:
		return "shut: nobody owns the key"
	case c.ring.Draining.Contains(c.key):
		return "shut, or soon: the key changes hands"
	case c.ring.Gap.Contains(c.key) && c.owner.Phase == shardingv1alpha1.InstanceActive:
		return "shut: its caches do not hold the key yet"
	case c.ring.Gap.Contains(c.key):
		return "shut: the instance is " + string(c.owner.Phase)
	}
	var idle []string
	for _, name := range c.controllers {
		waits := slices.ContainsFunc(c.owner.Waits, func(wait string) bool { return strings.HasPrefix(wait, name+": ") })
		if waits || !slices.Contains(c.owner.Working, name) {
			idle = append(idle, name)
		}
	}
	switch len(idle) {
	case 0:
		return "open"
	case len(c.controllers):
		return "shut: see kubectl ring status"
	default:
		return "open, but for " + strings.Join(idle, ",")
	}
}

// resourceOfController returns the resource of what controls the object, or its kind if the server
// does not serve that; the zero value: nothing does.
func resourceOfController(mapper meta.RESTMapper, object *unstructured.Unstructured) (schema.GroupResource, error) {
	ref := metav1.GetControllerOf(object)
	if ref == nil {
		return schema.GroupResource{}, nil
	}
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupResource{}, err
	}
	mapping, err := mapper.RESTMapping(version.WithKind(ref.Kind).GroupKind())
	if meta.IsNoMatchError(err) {
		return schema.GroupResource{Group: version.Group, Resource: ref.Kind}, nil
	}
	if err != nil {
		return schema.GroupResource{}, fmt.Errorf("looking for the resource of %s %s, which controls the object: %w", ref.Kind, ref.Name, err)
	}
	return mapping.Resource.GroupResource(), nil
}
