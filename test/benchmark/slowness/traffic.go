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
	"net/http"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// endOfList annotates the bookmark with which a watch says that it has sent what there was.
var endOfList = []byte("k8s.io/initial-events-end")

// listed is what a process has listed: by lists, and by watches that begin with what there is.
type listed struct {
	// requests counts those that were answered, and bytes are on the wire, without headers.
	requests, bytes int64
}

func (l listed) plus(other listed) listed {
	return listed{l.requests + other.requests, l.bytes + other.bytes}
}

func (l listed) minus(other listed) listed {
	return listed{l.requests - other.requests, l.bytes - other.bytes}
}

// lists are what a process has listed.
type lists struct {
	// all are its lists, and ranges those of a range of keys, as instances list.
	all, ranges listed
}

func (l lists) plus(other lists) lists {
	return lists{l.all.plus(other.all), l.ranges.plus(other.ranges)}
}

func (l lists) minus(other lists) lists {
	return lists{l.all.minus(other.all), l.ranges.minus(other.ranges)}
}

// traffic adds up what a process lists.
type traffic struct {
	lock  sync.Mutex
	lists lists
}

func (t *traffic) now() lists {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.lists
}

// addLocked adds a list, or a part of one.
func (t *traffic) addLocked(l listed, ranged bool) {
	t.lists.all = t.lists.all.plus(l)
	if ranged {
		t.lists.ranges = t.lists.ranges.plus(l)
	}
}

var requestInfo = &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// answer counts the bytes of an answer, as far as they are a list.
type answer struct {
	traffic *traffic
	// watch says that the request is a watch, and ranged that it is for a range of keys.
	watch, ranged bool
	// counting says that what comes is a list still, and tail is the end of what has come, in which
	// the end of the list may have begun.
	counting bool
	tail     []byte
}

// begin returns what counts the bytes of the answer to the request.
func (t *traffic) begin(r *http.Request, status int) *answer {
	a := &answer{traffic: t}
	info, err := requestInfo.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		return a
	}
	a.watch = info.Verb == "watch"
	query := r.URL.Query()
	a.ranged = query.Has("shardSelector")
	initial, _ := strconv.ParseBool(query.Get("sendInitialEvents"))
	a.counting = status == http.StatusOK && (info.Verb == "list" || a.watch && initial)
	if a.counting {
		t.lock.Lock()
		defer t.lock.Unlock()
		t.addLocked(listed{requests: 1}, a.ranged)
	}
	return a
}

// Write counts bytes.
func (a *answer) Write(b []byte) (int, error) {
	a.traffic.lock.Lock()
	defer a.traffic.lock.Unlock()
	if !a.counting {
		return len(b), nil
	}
	a.traffic.addLocked(listed{bytes: int64(len(b))}, a.ranged)
	if a.watch {
		a.tail = append(a.tail, b...)
		a.counting = !bytes.Contains(a.tail, endOfList)
		a.tail = bytes.Clone(a.tail[max(0, len(a.tail)-len(endOfList)+1):])
	}
	return len(b), nil
}
