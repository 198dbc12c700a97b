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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/localcluster"
	"k8s.io/kubernetes/pkg/ringtable"
)

func TestSize(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int
	}{{"1", 1}, {"20", 20}, {"007", 7}} {
		s := size{value: 3, min: 1, max: 20}
		if err := s.Set(tc.text); err != nil || s.value != tc.want {
			t.Errorf("%q: %d, %v, want %d", tc.text, s.value, err, tc.want)
		}
	}
	for _, text := range []string{"", "0", "21", "-1", "3.5", "three", "1e1", "99999999999999999999"} {
		s := size{value: 3, min: 1, max: 20}
		if err := s.Set(text); err == nil || !strings.Contains(err.Error(), "a whole number from 1 to 20") || s.value != 3 {
			t.Errorf("%q: %d, %v, want an error", text, s.value, err)
		}
	}
}

// TestBadNumbers: the error names the flag, and no process is started.
func TestBadNumbers(t *testing.T) {
	for _, flag := range []string{"instances", "nodes", "replicasets", "pods", "api-port"} {
		dir := filepath.Join(t.TempDir(), "local")
		command := newCommand()
		command.SetArgs([]string{"--" + flag, "-1", "--dir", dir})
		command.SilenceUsage, command.SilenceErrors = true, true
		err := command.Execute()
		if err == nil || !strings.Contains(err.Error(), "--"+flag) || !strings.Contains(err.Error(), "whole number from") {
			t.Errorf("--%s=-1: %v", flag, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("--%s=-1: the directory was made", flag)
		}
	}
}

func TestWorkloads(t *testing.T) {
	for _, tc := range []struct {
		replicaSets, pods, least, most int
	}{
		{replicaSets: 20, pods: 200, least: 8, most: 9},
		{replicaSets: 20, pods: 240, least: 10, most: 10},
		{replicaSets: 20, pods: 3, least: 0, most: 1},
		{replicaSets: 0, pods: 9, least: 2, most: 3},
		{replicaSets: 0, pods: 0, least: 0, most: 0},
	} {
		all := workloads(tc.replicaSets, tc.pods)
		least, most, sum, bare := all[0].pods, 0, 0, 0
		names := map[string]bool{}
		for _, w := range all {
			least, most, sum = min(least, w.pods), max(most, w.pods), sum+w.pods
			names[w.name] = true
			if !w.deployment {
				bare++
			}
		}
		if sum != tc.pods || least != tc.least || most != tc.most {
			t.Errorf("%+v: %d pods, from %d to %d each", tc, sum, least, most)
		}
		if bare != tc.replicaSets || len(all)-bare != deployments || len(names) != len(all) {
			t.Errorf("%+v: %d ReplicaSets, %d Deployments, %d names", tc, bare, len(all)-bare, len(names))
		}
	}
}

func TestCreateWorkloads(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	if err := createWorkloads(ctx, client, workloads(3, 9)); err != nil {
		t.Fatal(err)
	}
	replicaSets, err := client.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	created, err := client.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	sum := int32(0)
	for _, rs := range replicaSets.Items {
		sum += *rs.Spec.Replicas
	}
	for _, d := range created.Items {
		sum += *d.Spec.Replicas
	}
	if len(replicaSets.Items) != 3 || len(created.Items) != deployments || sum != 9 {
		t.Errorf("%d ReplicaSets and %d Deployments for %d pods", len(replicaSets.Items), len(created.Items), sum)
	}
}

func TestCreateOthers(t *testing.T) {
	ctx := t.Context()
	client := fake.NewClientset()
	if err := createOthers(ctx, client); err != nil {
		t.Fatal(err)
	}
	if err := createOthers(ctx, client); err == nil || !strings.Contains(err.Error(), "create job-1: ") {
		t.Errorf("again: %v", err)
	}
	jobs, err := client.BatchV1().Jobs("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(jobs.Items) != others {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
	cronJobs, err := client.BatchV1().CronJobs("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(cronJobs.Items) != others {
		t.Errorf("%d CronJobs, %v", len(cronJobs.Items), err)
	}
	daemonSets, err := client.AppsV1().DaemonSets("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(daemonSets.Items) != others {
		t.Errorf("%d DaemonSets, %v", len(daemonSets.Items), err)
	}
}

func TestCreateWorkloadsTellsWhichFailed(t *testing.T) {
	client := fake.NewClientset(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "rs-2", Namespace: "default"}})
	if err := createWorkloads(t.Context(), client, workloads(3, 9)); err == nil || !strings.Contains(err.Error(), "create rs-2: ") {
		t.Errorf("got %v", err)
	}
}

func TestExplain(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("%w: 6443", localcluster.ErrPortInUse): "API_PORT=",
		fmt.Errorf("%w: here", localcluster.ErrRunning):   "kill $(cat some/dir/launcher.pid)",
	} {
		if got := explain(err, "some/dir").Error(); !strings.HasPrefix(got, err.Error()) || !strings.Contains(got, want) {
			t.Errorf("got %s, want %v and %s", got, err, want)
		}
	}
}

func TestAddWithoutACluster(t *testing.T) {
	dir := t.TempDir()
	if err := add(dir); err == nil || !strings.Contains(err.Error(), "no cluster is running") {
		t.Errorf("an empty directory: %v", err)
	}
	// The file that a killed launcher leaves behind.
	if err := os.WriteFile(filepath.Join(dir, "launcher.pid"), []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := add(dir); err == nil || !strings.Contains(err.Error(), "no cluster is running") {
		t.Errorf("a stale pid: %v", err)
	}
}

// TestDied: the death of a controller manager is reported, and that of any other
// component ends the launcher.
func TestDied(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, []byte("last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		process, state string
		ends           bool
		says           []string
		not            string
	}{
		{process: "kube-controller-manager-2", state: "signal: killed", says: []string{"kube-controller-manager-2 has ended (signal: killed)", "not started again"}, not: "last words"},
		{process: "kube-controller-manager-2", state: "exit status 1", says: []string{"kube-controller-manager-2 has ended (exit status 1)", "last words"}},
		{process: "etcd", state: "signal: killed", ends: true, says: []string{"etcd has ended (signal: killed)", "last words"}},
	} {
		out, err := os.Create(filepath.Join(dir, "out"))
		if err != nil {
			t.Fatal(err)
		}
		l := &launcher{screen: ringtable.NewScreen(out)}
		ctx, end := context.WithCancelCause(t.Context())
		exit := &localcluster.Exit{Process: tc.process, State: tc.state, LogFile: log}
		l.died(exit, end)
		said, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
		if cause := context.Cause(ctx); (cause != nil) != tc.ends {
			t.Errorf("%+v: ended with %v", tc, cause)
		}
		if slices.ContainsFunc(tc.says, func(s string) bool { return !strings.Contains(string(said), s) }) || tc.not != "" && strings.Contains(string(said), tc.not) {
			t.Errorf("%+v: said %q", tc, said)
		}
	}
}
