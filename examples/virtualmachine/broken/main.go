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

// Command broken is the operator of VirtualMachines with one of the mistakes that an author may
// make, named by the rule of the conformance suite that it breaks. The suite's tests run it.
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring/host"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "ringmaster.example/virtualmachine/api/v1"
	vms "ringmaster.example/virtualmachine/controller"
)

// operator is the operator before it is broken.
type operator struct {
	ring *host.Config
	// client is what the manager's clients are made from, for its queues the function that makes them.
	client func(*host.Host, *rest.Config) *rest.Config
	queue  func(*host.Host) func(string, workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request]
	// reconciler has the reconciler, and beside, if set, what runs beside it.
	reconciler func(client.Client) reconciler
	beside     func(client.Client) manager.RunnableFunc
}

type reconciler interface {
	AddTo(ctrl.Manager, controller.Options) error
}

// mistakes break the operator, by rule.
var mistakes = map[string]func(*operator){
	// A client that is not the ring's.
	"named": func(o *operator) {
		o.client = func(_ *host.Host, config *rest.Config) *rest.Config { return config }
	},
	// Work that goes on when the object is another replica's.
	"gate": func(o *operator) {
		o.beside = func(c client.Client) manager.RunnableFunc { return poll(c, 500*time.Millisecond) }
	},
	// So much of it that some gets through before the API server has seen the new owner.
	"owner": func(o *operator) {
		o.client = func(ring *host.Host, config *rest.Config) *rest.Config {
			config = ring.Client(config, vms.Name)
			config.QPS = -1
			return config
		}
		o.beside = func(c client.Client) manager.RunnableFunc { return poll(c, time.Millisecond) }
	},
	// Pods with names of their own, and it remembers what it has made: the next owner does not.
	"excess": func(o *operator) {
		o.reconciler = func(c client.Client) reconciler { return &generating{Client: c} }
	},
	// What it does not hold it takes for gone.
	"absence": func(o *operator) {
		o.ring.Reads = []host.Read{{Object: &corev1.Pod{}, By: host.Whole}}
		o.client = func(_ *host.Host, config *rest.Config) *rest.Config { return config }
		o.beside = clean
	},
	// A queue without the gate: nobody queues what a replica has taken over.
	"settled": func(o *operator) {
		o.queue = func(ring *host.Host) func(string, workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			return func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
				host.NewQueue[ctrl.Request](ring)(name, limiter)
				return workqueue.NewTypedRateLimitingQueue(limiter)
			}
		}
	},
	// What is there it takes for its own.
	"anew": func(o *operator) {
		o.reconciler = func(c client.Client) reconciler { return &vms.Reconciler{Client: content{c}} }
	},
	// It ends at once when it is asked to.
	"leave": func(*operator) {
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			<-asked
			os.Exit(0)
		}()
	},
}

func main() {
	rules := slices.Sorted(maps.Keys(mistakes))
	rule := flag.String("break", os.Getenv("BREAK"), fmt.Sprintf("the rule to break: one of %q; default: the environment variable BREAK", rules))
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	mistake, ok := mistakes[*rule]
	if !ok {
		klog.ErrorS(nil, "Unknown rule", "break", *rule, "rules", rules)
		os.Exit(2)
	}
	o := &operator{
		ring: &host.Config{
			Ring: "virtualmachines",
			// Each replica is in a place of its own: none rests after the deaths of others.
			HolderIdentity: fmt.Sprintf("broken-%d", os.Getpid()),
			Controllers: []host.Controller{{
				Name: vms.Name, Workers: 5, Works: &v1.VirtualMachine{},
				Owns: []runtime.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}},
			}},
		},
		client:     func(ring *host.Host, config *rest.Config) *rest.Config { return ring.Client(config, vms.Name) },
		queue:      host.NewQueue[ctrl.Request],
		reconciler: func(c client.Client) reconciler { return &vms.Reconciler{Client: c} },
	}
	mistake(o)
	if err := o.run(); err != nil {
		klog.ErrorS(err, "The operator has ended")
		os.Exit(1)
	}
}

func (o *operator) run() error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1.AddToScheme} {
		if err := add(kinds); err != nil {
			return err
		}
	}
	o.ring.REST = config
	ring, err := host.New(*o.ring)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(o.client(ring, config), ctrl.Options{
		Scheme:  kinds,
		Cache:   cache.Options{NewInformer: ring.NewInformer},
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(ring); err != nil {
		return err
	}
	if o.beside != nil {
		if err := mgr.Add(o.beside(mgr.GetClient())); err != nil {
			return err
		}
	}
	if err := o.reconciler(mgr.GetClient()).AddTo(mgr, controller.Options{MaxConcurrentReconciles: 5, NewQueue: o.queue(ring)}); err != nil {
		return err
	}
	return mgr.Start(ctrl.SetupSignalHandler())
}

// poll writes to every machine that the replica has ever held, one after another.
func poll(c client.Client, period time.Duration) manager.RunnableFunc {
	held := map[types.NamespacedName]bool{}
	return every(period, func(ctx context.Context) error {
		var list v1.VirtualMachineList
		if err := c.List(ctx, &list); err != nil {
			return err
		}
		for i := range list.Items {
			held[client.ObjectKeyFromObject(&list.Items[i])] = true
		}
		var all sync.WaitGroup
		defer all.Wait()
		for name := range held {
			all.Go(func() {
				vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
				_ = c.Status().Patch(ctx, vm, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":"Polled%d"}}`, time.Now().UnixNano())))
			})
		}
		return nil
	})
}

// clean deletes the pods whose machine is not in the cache.
func clean(c client.Client) manager.RunnableFunc {
	return every(500*time.Millisecond, func(ctx context.Context) error {
		var pods corev1.PodList
		if err := c.List(ctx, &pods); err != nil {
			return err
		}
		for i := range pods.Items {
			owner := metav1.GetControllerOfNoCopy(&pods.Items[i])
			if owner == nil {
				continue
			}
			var vm v1.VirtualMachine
			if err := c.Get(ctx, types.NamespacedName{Namespace: pods.Items[i].Namespace, Name: owner.Name}, &vm); apierrors.IsNotFound(err) {
				_ = c.Delete(ctx, &pods.Items[i])
			}
		}
		return nil
	})
}

func every(period time.Duration, do func(context.Context) error) manager.RunnableFunc {
	return func(ctx context.Context) error {
		for {
			select {
			case <-time.After(period):
				if err := do(ctx); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Trying again")
				}
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// content takes AlreadyExists for success.
type content struct {
	client.Client
}

// Create implements client.Writer.
func (c content) Create(ctx context.Context, obj client.Object, options ...client.CreateOption) error {
	return client.IgnoreAlreadyExists(c.Client.Create(ctx, obj, options...))
}

// generating gives pods names of their own, and remembers for which machines it has made them.
type generating struct {
	client.Client
	made sync.Map
}

// AddTo adds the controller to a manager.
func (r *generating) AddTo(mgr ctrl.Manager, options controller.Options) error {
	return ctrl.NewControllerManagedBy(mgr).Named(vms.Name).
		For(&v1.VirtualMachine{}).Owns(&corev1.Pod{}).Owns(&corev1.PersistentVolumeClaim{}).
		WithOptions(options).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *generating) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var vm v1.VirtualMachine
	if err := r.Get(ctx, req.NamespacedName, &vm); err != nil || vm.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if vm.Status.ObservedGeneration != vm.Generation {
		vm.Status.ObservedGeneration = vm.Generation
		if err := r.Status().Update(ctx, &vm); err != nil {
			return ctrl.Result{}, err
		}
	}
	if _, made := r.made.Load(vm.UID); made || !vm.Spec.Running {
		return ctrl.Result{}, nil
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: vm.Name + "-", Namespace: vm.Namespace, Labels: map[string]string{"virtualmachine": vm.Name}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "machine", Image: vm.Spec.Image}}},
	}
	if err := controllerutil.SetControllerReference(&vm, pod, r.Scheme()); err != nil {
		return ctrl.Result{}, err
	}
	if err := r.Create(ctx, pod); err != nil {
		return ctrl.Result{}, err
	}
	r.made.Store(vm.UID, true)
	return ctrl.Result{}, nil
}
