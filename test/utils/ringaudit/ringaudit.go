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

// Package ringaudit reads the two sources by which writes of a cluster are judged: the API
// server's audit log, which names the writers, and etcd, which has all changes in order.
package ringaudit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Read passes each event of an audit log to take, as the log grows, until ctx ends. E has the
// fields of an event that take needs. The file may come to be later than the call.
func Read[E any](ctx context.Context, file string, take func(E)) error {
	var f *os.File
	for f == nil {
		var err error
		if f, err = os.Open(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if f == nil && !pause(ctx) {
			return nil
		}
	}
	defer f.Close()
	lines := bufio.NewReaderSize(f, 1<<20)
	var line []byte
	for {
		part, err := lines.ReadBytes('\n')
		line = append(line, part...)
		if errors.Is(err, io.EOF) {
			if !pause(ctx) {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		if event, ok := parse[E](line); ok {
			take(event)
		}
		line = line[:0]
	}
}

// parse reads a line. A killed server may leave half a line, to which the next server's first is
// appended.
func parse[E any](line []byte) (event E, ok bool) {
	if json.Unmarshal(line, &event) == nil {
		return event, true
	}
	var last E
	i := strings.LastIndex(string(line), `{"kind":"Event","apiVersion"`)
	return last, i > 0 && json.Unmarshal(line[i:], &last) == nil
}

// pause waits before a file is read again. It returns false if ctx has ended.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(10 * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

// Follow passes all changes that etcd has stored under /registry/, from its first revision on, to
// take until ctx ends: in order, and also while the API server is down. If the watch ends earlier,
// it calls fail. The caller closes the client.
func Follow(ctx context.Context, endpoint string, take func(clientv3.WatchResponse), fail func(error)) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	go func() {
		// A single watch, because only that preserves the order between resources.
		for response := range client.Watch(ctx, "/registry/", clientv3.WithPrefix(), clientv3.WithRev(1), clientv3.WithPrevKV()) {
			take(response)
		}
		if ctx.Err() == nil {
			fail(fmt.Errorf("the watch of etcd has ended"))
		}
	}()
	return client, nil
}
