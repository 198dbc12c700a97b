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
	"math/rand/v2"
	"net"
	"strconv"
)

const host = "127.0.0.1"

// Free ports lie below the ranges that kernels use for outgoing connections. Otherwise
// a connection could take a port between its choice and its use.
const (
	firstFreePort = 20000
	lastFreePort  = 29999
)

// ErrPortInUse means that another program listens on the port of a component.
var ErrPortInUse = errors.New("port is in use by another program")

// ports allocates ports of the loopback interface, each at most once.
type ports struct {
	taken map[int]bool
}

// free returns a port that nobody listens on.
func (p *ports) free() (int, error) {
	var err error
	for range 1000 {
		port := firstFreePort + rand.IntN(lastFreePort-firstFreePort+1)
		if p.taken[port] {
			continue
		}
		if err = checkFree(port); err == nil {
			return p.take(port), nil
		}
	}
	return 0, fmt.Errorf("no free port from %d to %d: %w", firstFreePort, lastFreePort, err)
}

// given returns that port, or ErrPortInUse if a program listens on it.
func (p *ports) given(port int) (int, error) {
	if err := checkFree(port); err != nil {
		return 0, err
	}
	return p.take(port), nil
}

func (p *ports) take(port int) int {
	if p.taken == nil {
		p.taken = map[int]bool{}
	}
	p.taken[port] = true
	return port
}

func checkFree(port int) error {
	listener, err := net.Listen("tcp", hostPort(port))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrPortInUse, err)
	}
	return listener.Close()
}

func hostPort(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
