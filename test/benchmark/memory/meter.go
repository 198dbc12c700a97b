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
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// meter counts the bytes that an informer receives, and measures the heap meanwhile.
type meter struct {
	// every is the number of bytes between two measurements of the live heap.
	every int64

	// reading is locked for writing while the live heap is measured, so nothing is decoded
	// meanwhile. Bytes that are allocated during a collection count as live.
	reading sync.RWMutex

	mu       sync.Mutex
	received int64
	next     int64
	peak     usage
	// bodies are the response bodies of open watches.
	bodies map[*body]struct{}
	// blocked is closed when watches may be opened again. If expire is set, the first of
	// them is answered 410.
	blocked chan struct{}
	expire  bool
	// cutAfter, if positive, is the number of bytes after which the connection is cut once.
	cutAfter int64
}

// usage is the heap of a process: bytes that are reachable, and in spans in use.
type usage struct {
	Live, InUse uint64
}

// live returns the number of reachable bytes. The second collection frees what was
// allocated during the first.
func live() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// sample measures the live heap now.
func (m *meter) sample() {
	m.reading.Lock()
	defer m.reading.Unlock()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	bytes := live()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak.InUse = max(m.peak.InUse, stats.HeapInuse)
	m.peak.Live = max(m.peak.Live, bytes)
}

// watchHeap samples at fixed intervals, also while no bytes arrive.
func (m *meter) watchHeap() (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-done:
				return
			case <-time.After(200 * time.Millisecond):
				m.sample()
			}
		}
	}()
	return func() {
		close(done)
		<-stopped
	}
}

// reset begins a measurement.
func (m *meter) reset() {
	// On Linux this resets the peak of the resident set.
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.peak, m.received, m.next = usage{}, 0, m.every
}

func (m *meter) wrap(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		query := r.URL.Query()
		isWatch := query.Get("watch") != "" && query.Get("watch") != "false"
		resumes := isWatch && query.Get("sendInitialEvents") != "true"
		m.mu.Lock()
		blocked := m.blocked
		m.mu.Unlock()
		if isWatch && blocked != nil {
			select {
			case <-blocked:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		m.mu.Lock()
		expire := resumes && m.expire
		m.expire = m.expire && !expire
		m.mu.Unlock()
		if expire {
			return gone(r), nil
		}
		response, err := rt.RoundTrip(r)
		if err == nil {
			b := &body{ReadCloser: response.Body, meter: m}
			response.Body = b
			if isWatch {
				m.mu.Lock()
				m.bodies[b] = struct{}{}
				m.mu.Unlock()
			}
		}
		return response, err
	})
}

// cut ends all watches. New ones wait until allow is called. The first of them is then
// answered 410.
func (m *meter) cut() (allow func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blocked, m.expire = make(chan struct{}), true
	for b := range m.bodies {
		_ = b.ReadCloser.Close()
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		close(m.blocked)
		m.blocked = nil
	}
}

func gone(r *http.Request) *http.Response {
	status, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "made to expire",
	})
	if err != nil {
		panic(err)
	}
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(status)), ContentLength: int64(len(status)),
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return rt(r) }

type body struct {
	io.ReadCloser
	meter *meter
}

func (b *body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.meter.reading.RLock()
	b.meter.reading.RUnlock()
	b.meter.mu.Lock()
	b.meter.received += int64(n)
	due := b.meter.received >= b.meter.next
	if due {
		b.meter.next = b.meter.received + b.meter.every
	}
	cut := b.meter.cutAfter > 0 && b.meter.received >= b.meter.cutAfter
	if cut {
		b.meter.cutAfter = 0
	}
	b.meter.mu.Unlock()
	if due {
		b.meter.sample()
	}
	if cut {
		_ = b.ReadCloser.Close()
		return n, io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) Close() error {
	b.meter.mu.Lock()
	delete(b.meter.bodies, b)
	b.meter.mu.Unlock()
	return b.ReadCloser.Close()
}
