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

package podtrim

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/pkg/controller/siblings"
	"k8s.io/utils/ptr"
)

// livePod returns pod number i of a Deployment as a kubelet reports it: two containers with five
// variables, a probe and requests each, the volume of the service account, and all conditions.
func livePod(i, replicas int) *v1.Pod {
	set := fmt.Sprintf("web-%d-7d4b9c6f5", i/replicas)
	name := fmt.Sprintf("%s-%05x", set, i)
	at := metav1.NewTime(time.Unix(1700000000+int64(i), 0))
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "production", Name: name, GenerateName: set + "-", UID: types.UID(fmt.Sprintf("0f5e3c1a-8a3e-4d3b-9a55-%012d", i)),
			ResourceVersion: fmt.Sprint(1000000 + i), CreationTimestamp: at,
			Labels:      map[string]string{"app": "web", "pod-template-hash": "7d4b9c6f5", "app.kubernetes.io/part-of": "shop"},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": "2c26b46b68ffc68ff99b453c1d304134"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set, UID: types.UID(fmt.Sprintf("9b1c7d0e-0000-4d3b-9a55-%012d", i/replicas)),
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: v1.PodSpec{
			NodeName: fmt.Sprintf("node-%05d", i%5000), RestartPolicy: v1.RestartPolicyAlways, TerminationGracePeriodSeconds: ptr.To(int64(30)),
			DNSPolicy: v1.DNSClusterFirst, ServiceAccountName: "default", DeprecatedServiceAccount: "default", SchedulerName: "default-scheduler",
			SecurityContext: &v1.PodSecurityContext{}, Priority: ptr.To(int32(0)), EnableServiceLinks: ptr.To(true), PreemptionPolicy: ptr.To(v1.PreemptLowerPriority),
			Tolerations: []v1.Toleration{
				{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300))},
				{Key: v1.TaintNodeUnreachable, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: ptr.To(int64(300))},
			},
			Volumes: []v1.Volume{{Name: "kube-api-access-x7k2p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				DefaultMode: ptr.To(int32(420)),
				Sources: []v1.VolumeProjection{
					{ServiceAccountToken: &v1.ServiceAccountTokenProjection{ExpirationSeconds: ptr.To(int64(3607)), Path: "token"}},
					{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
					{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
				},
			}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, HostIP: "10.0.0.1", PodIP: "10.128.0.1", HostIPs: []v1.HostIP{{IP: "10.0.0.1"}}, PodIPs: []v1.PodIP{{IP: "10.128.0.1"}},
			StartTime: &at, QOSClass: v1.PodQOSBurstable,
		},
	}
	for _, condition := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, v1.PodCondition{Type: condition, Status: v1.ConditionTrue, LastTransitionTime: at})
	}
	for _, container := range []string{"web", "proxy"} {
		requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("100m"), v1.ResourceMemory: resource.MustParse("128Mi")}
		c := v1.Container{
			Name: container, Image: "registry.example.com/shop/" + container + ":v1.2.3", ImagePullPolicy: v1.PullIfNotPresent,
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
			Ports:     []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}},
			Resources: v1.ResourceRequirements{Requests: requests},
			ReadinessProbe: &v1.Probe{
				ProbeHandler:   v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/ready", Port: intstr.FromString("http"), Scheme: v1.URISchemeHTTP}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3,
			},
			VolumeMounts: []v1.VolumeMount{{Name: "kube-api-access-x7k2p", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
		}
		for n := range 5 {
			c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("SETTING_%d", n), Value: fmt.Sprintf("value-%d", n)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: container, Ready: true, Started: ptr.To(true), Image: c.Image,
			ImageID:     "registry.example.com/shop/" + container + "@sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
			ContainerID: "containerd://2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: at}},
			AllocatedResources: requests, Resources: &v1.ResourceRequirements{Requests: requests},
		})
	}
	return pod
}

// BenchmarkHeld prints how many bytes of the heap a pod holds after it has been decoded: whole,
// with what one controller reads, and with what all of them read, pods of 20 siblings sharing what
// is equal or not.
func BenchmarkHeld(b *testing.B) {
	const pods, replicas = 2000, 20
	encoded := make([][]byte, pods)
	for i := range encoded {
		var err error
		if encoded[i], err = livePod(i, replicas).Marshal(); err != nil {
			b.Fatal(err)
		}
	}
	held := func(begin func() (transform func(*v1.Pod))) float64 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		transform := begin()
		kept := make([]*v1.Pod, pods)
		for i, data := range encoded {
			kept[i] = &v1.Pod{}
			if err := kept[i].Unmarshal(data); err != nil {
				b.Fatal(err)
			}
			transform(kept[i])
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(kept)
		runtime.KeepAlive(transform)
		return float64(after.HeapAlloc-before.HeapAlloc) / pods
	}
	always := func(transform func(*v1.Pod)) func() func(*v1.Pod) {
		return func() func(*v1.Pod) { return transform }
	}
	asTheyAre := always(func(*v1.Pod) {})
	whole := held(asTheyAre)
	report := func(name string, begin func() func(*v1.Pod)) {
		b.Run(name, func(b *testing.B) {
			var bytes float64
			for b.Loop() {
				bytes = held(begin)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(bytes, "B/pod")
			b.ReportMetric(bytes/whole, "x-whole")
		})
	}
	report("whole", asTheyAre)
	report("whole, shared by siblings", func() func(*v1.Pod) { return siblings.NewSharer[v1.Pod](nil).Share })
	report("metadata", always(Fields(0).trim))
	var union Fields
	for _, name := range slices.Sorted(maps.Keys(reads)) {
		if fields := reads[name]; fields != 0 && fields != All {
			report(name, always(fields.trim))
			union |= fields
		}
	}
	report("all of these", always(union.trim))
	report("all of these, shared by siblings", func() func(*v1.Pod) {
		trimmer := NewTrimmer()
		trimmer.Keep(union, nil)
		return func(pod *v1.Pod) { trimmer.Transform(pod) }
	})
}

// BenchmarkEvent measures what an update of a pod costs: to decode it, as it comes, to decode it
// and have it share memory with the version that is stored and its siblings, as on a ring, and to
// decode and trim it beside them, twice as a WatchList has it. It includes the collection of what
// becomes garbage.
func BenchmarkEvent(b *testing.B) {
	const pods, replicas = 2000, 20
	encoded := make([][]byte, pods)
	for i := range encoded {
		var err error
		if encoded[i], err = livePod(i, replicas).Marshal(); err != nil {
			b.Fatal(err)
		}
	}
	var union Fields
	for _, fields := range reads {
		if fields != All {
			union |= fields
		}
	}
	trimming := func(store cache.Store) func(any) {
		trimmer := NewTrimmer()
		trimmer.Keep(union, store)
		return func(pod any) {
			trimmer.Transform(pod)
			trimmer.Transform(pod)
		}
	}
	for _, c := range []struct {
		name      string
		transform func(cache.Store) func(any)
	}{
		{"whole", func(cache.Store) func(any) { return func(any) {} }},
		{"whole, shared by siblings", siblings.Transformer[v1.Pod]},
		{"trimmed", trimming},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			transform := c.transform(store)
			for i := 0; b.Loop(); i++ {
				pod := &v1.Pod{}
				if err := pod.Unmarshal(encoded[i%pods]); err != nil {
					b.Fatal(err)
				}
				transform(pod)
				if err := store.Update(pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
