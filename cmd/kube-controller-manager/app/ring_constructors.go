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

package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/util/wait"
	cacheddiscovery "k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/ring/member"
	clientbuilder "k8s.io/controller-manager/pkg/clientbuilder"
	csitrans "k8s.io/csi-translation-lib"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/config"
	"k8s.io/kubernetes/pkg/controller/cronjob"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/endpointslice"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/podautoscaler"
	"k8s.io/kubernetes/pkg/controller/podautoscaler/metrics"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	controllerring "k8s.io/kubernetes/pkg/controller/ring"
	"k8s.io/kubernetes/pkg/controller/ring/catalogue"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/ttlafterfinished"
	"k8s.io/kubernetes/pkg/controller/volume/ephemeral"
	"k8s.io/kubernetes/pkg/controller/volume/expand"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/volume/csimigration"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	"k8s.io/metrics/pkg/client/custom_metrics"
	"k8s.io/metrics/pkg/client/external_metrics"
)

// mapperResetPeriod is how often the kinds that the API server has are asked for again, as in
// stock.
const mapperResetPeriod = 30 * time.Second

// ringConstructor makes a controller of the catalogue.
type ringConstructor struct {
	build          func(context.Context, *ringParts) (*controllerring.Controller, error)
	defaultWorkers func(*config.CompletedConfig) int32
}

// ringParts are what a controller on a ring is made of.
type ringParts struct {
	*controllerring.Env
	// door is Env.Gate.
	door   *member.Door
	config *config.CompletedConfig
	// client is the configuration of Env.Client.
	client *rest.Config
	mapper meta.RESTMapper
}

// plain is for a controller that needs no more than an Env.
func plain(onRing func(context.Context, *controllerring.Env) (*controllerring.Controller, error)) func(context.Context, *ringParts) (*controllerring.Controller, error) {
	return func(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
		return onRing(ctx, parts.Env)
	}
}

// one is the number of workers of a controller that has no setting for it.
func one(*config.CompletedConfig) int32 { return 1 }

// ringConstructors has one for each controller of the catalogue, by name.
var ringConstructors = map[string]ringConstructor{
	catalogue.CronJobController: {plain(cronjob.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.CronJobController.ConcurrentCronJobSyncs
	}},
	catalogue.DaemonSetController: {plain(daemon.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.DaemonSetController.ConcurrentDaemonSetSyncs
	}},
	catalogue.DeploymentController: {plain(deployment.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.DeploymentController.ConcurrentDeploymentSyncs
	}},
	catalogue.DisruptionController: {disruptionOnRing, func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.DisruptionController.ConcurrentDisruptionSyncs
	}},
	catalogue.EndpointSliceController: {endpointSliceOnRing, func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.EndpointSliceController.ConcurrentServiceEndpointSyncs
	}},
	catalogue.EndpointsController: {endpointsOnRing, func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.EndpointController.ConcurrentEndpointSyncs
	}},
	catalogue.EphemeralVolumeController: {plain(ephemeral.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.EphemeralVolumeController.ConcurrentEphemeralVolumeSyncs
	}},
	catalogue.HorizontalPodAutoscalerController: {horizontalPodAutoscalerOnRing, func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.HPAController.ConcurrentHorizontalPodAutoscalerSyncs
	}},
	catalogue.JobController: {plain(job.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.JobController.ConcurrentJobSyncs
	}},
	catalogue.PersistentVolumeClaimProtectionController: {plain(pvcprotection.OnRing), one},
	catalogue.PersistentVolumeExpanderController: {expanderOnRing, func(*config.CompletedConfig) int32 {
		return expand.DefaultWorkers
	}},
	catalogue.PersistentVolumeProtectionController: {plain(pvprotection.OnRing), one},
	catalogue.ReplicaSetController: {plain(replicaset.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.ReplicaSetController.ConcurrentRSSyncs
	}},
	catalogue.ReplicationControllerController: {plain(replication.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.ReplicationController.ConcurrentRCSyncs
	}},
	catalogue.StatefulSetController: {plain(statefulset.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.StatefulSetController.ConcurrentStatefulSetSyncs
	}},
	catalogue.TTLAfterFinishedController: {plain(ttlafterfinished.OnRing), func(c *config.CompletedConfig) int32 {
		return c.ComponentConfig.TTLAfterFinishedController.ConcurrentTTLSyncs
	}},
}

func endpointSliceOnRing(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
	c := parts.config.ComponentConfig.EndpointSliceController
	return endpointslice.OnRing(ctx, parts.Env, c.MaxEndpointsPerSlice, c.EndpointUpdatesBatchPeriod.Duration)
}

func endpointsOnRing(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
	return endpoint.OnRing(ctx, parts.Env, parts.config.ComponentConfig.EndpointController.EndpointUpdatesBatchPeriod.Duration)
}

func disruptionOnRing(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
	scales, err := parts.scales()
	if err != nil {
		return nil, err
	}
	apps, core := parts.Informers.Apps().V1(), parts.Informers.Core().V1()
	return disruption.NewDisruptionController(ctx,
		core.Pods(), parts.Informers.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(), apps.ReplicaSets(), apps.Deployments(), apps.StatefulSets(),
		parts.Client, parts.mapper, scales, parts.Client.Discovery()).OnRing(ctx, parts.Env)
}

func horizontalPodAutoscalerOnRing(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
	scales, err := parts.scales()
	if err != nil {
		return nil, err
	}
	available := custom_metrics.NewAvailableAPIsGetter(parts.Client.Discovery())
	reader := parts.ofOthers()
	resources, err := resourceclient.NewForConfig(reader)
	if err != nil {
		return nil, fmt.Errorf("making a client of resource metrics: %w", err)
	}
	external, err := external_metrics.NewForConfig(reader)
	if err != nil {
		return nil, fmt.Errorf("making a client of external metrics: %w", err)
	}
	c := parts.config.ComponentConfig.HPAController
	go custom_metrics.PeriodicallyInvalidate(available, c.HorizontalPodAutoscalerSyncPeriod.Duration, ctx.Done())
	return podautoscaler.NewHorizontalController(ctx,
		parts.Client.CoreV1(), scales, parts.Client.AutoscalingV2(), parts.mapper,
		metrics.NewRESTMetricsClient(resources, custom_metrics.NewForConfig(reader, parts.mapper, available), external),
		parts.Informers.Autoscaling().V2().HorizontalPodAutoscalers(), parts.Informers.Core().V1().Pods(),
		c.HorizontalPodAutoscalerSyncPeriod.Duration,
		c.HorizontalPodAutoscalerDownscaleStabilizationWindow.Duration,
		c.HorizontalPodAutoscalerTolerance,
		c.HorizontalPodAutoscalerCPUInitializationPeriod.Duration,
		c.HorizontalPodAutoscalerInitialReadinessDelay.Duration,
	).OnRing(parts.Env, c.HorizontalPodAutoscalerSyncPeriod.Duration)
}

// keyOfNamespace returns the hash key of the namespace that a request is for.
func keyOfNamespace(req *http.Request) (int64, bool) {
	_, rest, in := strings.Cut(req.URL.Path, "/namespaces/")
	namespace, _, _ := strings.Cut(rest, "/")
	return hashkey.OfNamespace(namespace), in && namespace != ""
}

func expanderOnRing(ctx context.Context, parts *ringParts) (*controllerring.Controller, error) {
	plugins, err := ProbeExpandableVolumePlugins(klog.FromContext(ctx), parts.config.ComponentConfig.PersistentVolumeBinderController.VolumeConfiguration)
	if err != nil {
		return nil, fmt.Errorf("probing volume plugins: %w", err)
	}
	translator := csitrans.New()
	return expand.OnRing(ctx, parts.Env, plugins, translator, csimigration.NewPluginManager(translator))
}

// ofOthers returns the configuration of a client for what another API server may answer. That may
// take long, and a range would have to wait for it.
func (p *ringParts) ofOthers() *rest.Config {
	config := rest.CopyConfig(p.client)
	config.Wrap(p.door.WrapReads(keyOfNamespace))
	return config
}

// scales returns a client of the scale subresource of any resource.
func (p *ringParts) scales() (scale.ScalesGetter, error) {
	scales, err := scale.NewForConfig(p.ofOthers(), p.mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(p.Client.Discovery()))
	if err != nil {
		return nil, fmt.Errorf("making a client of the scale subresource: %w", err)
	}
	return scales, nil
}

// newRingMapper returns what finds the resource of a kind, until ctx ends.
func newRingMapper(ctx context.Context, clients clientbuilder.ControllerClientBuilder) (meta.RESTMapper, error) {
	client, err := clients.DiscoveryClient("controller-discovery")
	if err != nil {
		return nil, fmt.Errorf("making a discovery client for the rings: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cacheddiscovery.NewMemCacheClient(client))
	go wait.Until(mapper.Reset, mapperResetPeriod, ctx.Done())
	return mapper, nil
}
