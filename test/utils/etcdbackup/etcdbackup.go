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

// Package etcdbackup takes backups of an etcd of one member and restores them, as people do.
package etcdbackup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Take writes a snapshot of the etcd at that endpoint into a file.
func Take(ctx context.Context, endpoint, file string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer snapshot.Close()
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, snapshot)
	return errors.Join(err, f.Close())
}

// Restore makes a data directory, which must not exist, of a backup, for a member of that name with
// that peer URL. etcdutl is the program, and flags are further ones of its "snapshot restore".
func Restore(etcdutl, backup, data, name, peer string, flags ...string) error {
	args := append([]string{"snapshot", "restore", backup, "--data-dir=" + data, "--name=" + name,
		"--initial-cluster=" + name + "=" + peer, "--initial-advertise-peer-urls=" + peer}, flags...)
	if out, err := exec.Command(etcdutl, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("etcdutl %v: %w\n%s", args, err, out)
	}
	return nil
}
