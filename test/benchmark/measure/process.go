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

// Package measure measures processes of a cluster from outside.
package measure

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/test/harness"
	"k8s.io/kubernetes/test/harness/proxy"
)

var heapAlloc = regexp.MustCompile(`(?m)^# HeapAlloc = (\d+)$`)

// Live makes a process collect its garbage, and returns the bytes that remain.
func Live(ctx context.Context, cluster *localcluster.Cluster, process string) (uint64, error) {
	return heap(ctx, cluster, process, "/debug/pprof/heap?gc=1&debug=1")
}

// Allocated returns the bytes of all objects in a process's heap, garbage included.
func Allocated(ctx context.Context, cluster *localcluster.Cluster, process string) (uint64, error) {
	return heap(ctx, cluster, process, "/debug/pprof/heap?debug=1")
}

func heap(ctx context.Context, cluster *localcluster.Cluster, process, path string) (uint64, error) {
	// With debug=1 the profile includes the size of the heap, after the collection if there is one.
	profile, err := cluster.Get(ctx, process, path)
	if err != nil {
		return 0, err
	}
	match := heapAlloc.FindSubmatch(profile)
	if match == nil {
		return 0, fmt.Errorf("the heap profile of %s lacks HeapAlloc", process)
	}
	return strconv.ParseUint(string(match[1]), 10, 64)
}

// LeastLive returns the least of several measurements. The others may include objects in use
// by a request, or in a pool that only a second collection empties.
func LeastLive(ctx context.Context, cluster *localcluster.Cluster, process string) (uint64, error) {
	var least uint64
	for i := range 5 {
		bytes, err := Live(ctx, cluster, process)
		if err != nil {
			return 0, err
		}
		if i == 0 || bytes < least {
			least = bytes
		}
		if err := harness.Sleep(ctx, 500*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return least, nil
}

// Usage returns the largest resident set that a process has had, in bytes, and its CPU time.
func Usage(pid int) (peak uint64, used time.Duration, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmHWM:" {
			kib, err := strconv.ParseUint(fields[1], 10, 64)
			if err != nil {
				return 0, 0, err
			}
			peak = kib << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The second field, the name in parentheses, may contain anything.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	const utime, stime, perSecond = 11, 12, 100 // Linux always reports hundredths of a second
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, 0, err
		}
		used += time.Duration(n) * time.Second / perSecond
	}
	return peak, used, nil
}

// NewProxy returns a proxy for one process, which counts the bytes of the API server's answers on
// the wire.
func NewProxy(cluster *localcluster.Cluster) (*proxy.Proxy, error) {
	endpoint, err := cluster.Endpoint(string(localcluster.KubeAPIServer))
	if err != nil {
		return nil, err
	}
	return proxy.New(nil, endpoint)
}
