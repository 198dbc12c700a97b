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

package localcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Component is a kind of process in a cluster, by the name of its binary.
type Component string

// The components of a cluster. Each has one process of the same name, except for
// KubeControllerManager, whose processes have a number appended to their names, as have
// those of KubeAPIServer from the second on.
const (
	Etcd                  Component = "etcd"
	KubeAPIServer         Component = "kube-apiserver"
	KubeControllerManager Component = "kube-controller-manager"
	KubeScheduler         Component = "kube-scheduler"
	Kwok                  Component = "kwok"
)

// program is the kind of a process that is no part of the cluster.
const program Component = ""

// checkFiles returns an error that names the missing files.
func checkFiles(config Config) error {
	kinds := []Component{Etcd, KubeAPIServer, KubeControllerManager}
	if !config.WithoutNodes {
		kinds = append(kinds, KubeScheduler, Kwok)
	}
	var missing []string
	for _, kind := range kinds {
		file := filepath.Join(config.BinDir, string(kind))
		if info, err := os.Stat(file); err != nil || info.Mode()&0o111 == 0 {
			missing = append(missing, file)
		}
	}
	if _, err := os.Stat(config.KwokStages); err != nil && !config.WithoutNodes {
		missing = append(missing, config.KwokStages)
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing %s: run `make build`", strings.Join(missing, ", "))
	}
	return nil
}

// component describes a process to start.
type component struct {
	kind Component
	name string
	// endpoint is the URL that it serves. It is ready when healthPath there returns 200.
	endpoint, healthPath string
	args                 []string
	// last are flags that follow those of Config.Args, and so override them.
	last []string
	// Of a program: args is the whole command, which runs in workDir with env beside the
	// caller's environment.
	workDir string
	env     []string
}

func (c *Cluster) etcd() (component, error) {
	client, err := c.ports.free()
	if err != nil {
		return component{}, err
	}
	peer, err := c.ports.free()
	if err != nil {
		return component{}, err
	}
	clientURL, peerURL := urlOf("http", client), urlOf("http", peer)
	return component{
		kind: Etcd, name: string(Etcd), endpoint: clientURL, healthPath: "/health",
		args: []string{
			"--name=local",
			"--data-dir=" + filepath.Join(c.dir.path, "etcd"),
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=local=" + peerURL,
			// The data does not outlive the cluster, so it need not survive a power cut.
			"--unsafe-no-fsync",
			"--log-level=warn",
		},
	}, nil
}

// apiServer describes the first API server, or a further one with its number in its name.
func (c *Cluster) apiServer(etcdURL string) (component, error) {
	c.apiServers++
	name := string(KubeAPIServer)
	port := 0
	var err error
	if c.apiServers == 1 {
		port, err = c.apiServerPort()
	} else {
		name = fmt.Sprintf("%s-%d", KubeAPIServer, c.apiServers)
		port, err = c.ports.free()
	}
	if err != nil {
		return component{}, err
	}
	return component{
		kind: KubeAPIServer, name: name, endpoint: urlOf("https", port), healthPath: "/readyz",
		args: append([]string{
			"--etcd-servers=" + etcdURL,
			"--bind-address=" + host,
			"--advertise-address=" + host,
			// Endpoints cannot be loopback addresses, and nothing here uses them.
			"--endpoint-reconciler-type=none",
			"--secure-port=" + strconv.Itoa(port),
			"--client-ca-file=" + c.pki.caFile,
			"--authorization-mode=Node,RBAC",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + c.pki.serviceAccountVerificationKey,
			"--service-account-signing-key-file=" + c.pki.serviceAccountKeyFile,
			"--service-cluster-ip-range=10.0.0.0/24",
			"--allow-privileged=true",
		}, append(c.servingArgs(), c.featureGateArgs()...)...),
	}, nil
}

func (c *Cluster) apiServerPort() (int, error) {
	if c.config.APIServerPort == 0 {
		return c.ports.free()
	}
	return c.ports.given(c.config.APIServerPort)
}

func (c *Cluster) controllerManager(number int) (component, error) {
	port, err := c.ports.free()
	if err != nil {
		return component{}, err
	}
	name := fmt.Sprintf("%s-%d", KubeControllerManager, number)
	kubeconfig, err := c.writeKubeconfig(name, "system:kube-controller-manager")
	if err != nil {
		return component{}, err
	}
	return component{
		kind: KubeControllerManager, name: name, endpoint: urlOf("https", port), healthPath: "/healthz",
		args: slices.Concat(c.clientArgs(kubeconfig, port), c.servingArgs(), c.featureGateArgs(), []string{
			"--leader-elect=true",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + c.pki.serviceAccountKeyFile,
			"--root-ca-file=" + c.pki.caFile,
			// At the default of 20 a second, filling a few ReplicaSets takes minutes.
			"--kube-api-qps=200",
			"--kube-api-burst=400",
		}),
	}, nil
}

func (c *Cluster) scheduler() (component, error) {
	port, err := c.ports.free()
	if err != nil {
		return component{}, err
	}
	kubeconfig, err := c.writeKubeconfig(string(KubeScheduler), "system:kube-scheduler")
	if err != nil {
		return component{}, err
	}
	return component{
		kind: KubeScheduler, name: string(KubeScheduler), endpoint: urlOf("https", port), healthPath: "/healthz",
		args: slices.Concat(c.clientArgs(kubeconfig, port), c.servingArgs(), c.featureGateArgs(), []string{
			"--leader-elect=false",
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
		}),
	}, nil
}

func (c *Cluster) kwok() (component, error) {
	port, err := c.ports.free()
	if err != nil {
		return component{}, err
	}
	kubeconfig, err := c.writeKubeconfig(string(Kwok), "kwok", "system:masters")
	if err != nil {
		return component{}, err
	}
	return component{
		kind: Kwok, name: string(Kwok), endpoint: urlOf("http", port), healthPath: "/healthz",
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--config=" + c.config.KwokStages,
			"--server-address=" + hostPort(port),
			"--manage-all-nodes=true",
			"--node-lease-duration-seconds=40",
		},
	}, nil
}

// servingArgs returns the flags with which all components of Kubernetes serve TLS.
func (c *Cluster) servingArgs() []string {
	return []string{
		"--tls-cert-file=" + c.pki.servingCertFile,
		"--tls-private-key-file=" + c.pki.servingKeyFile,
	}
}

// clientArgs returns the flags of the API server's clients. They delegate to it who may
// read what they serve.
func (c *Cluster) clientArgs(kubeconfig string, port int) []string {
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + c.pki.caFile,
		"--bind-address=" + host,
		"--secure-port=" + strconv.Itoa(port),
	}
}

func (c *Cluster) featureGateArgs() []string {
	if len(c.config.FeatureGates) == 0 {
		return nil
	}
	var gates []string
	for gate, on := range c.config.FeatureGates {
		gates = append(gates, fmt.Sprintf("%s=%t", gate, on))
	}
	slices.Sort(gates)
	return []string{"--feature-gates=" + strings.Join(gates, ",")}
}

func (c *Cluster) writeKubeconfig(name, user string, groups ...string) (string, error) {
	file := c.dir.kubeconfig(name)
	if err := c.pki.writeKubeconfig(file, c.apiServerURL, user, groups...); err != nil {
		return "", errors.Join(fmt.Errorf("write %s", file), err)
	}
	return file, nil
}

func urlOf(scheme string, port int) string { return scheme + "://" + hostPort(port) }
