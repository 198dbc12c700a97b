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

package host

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/hashkey"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/rangewatch"
	"k8s.io/client-go/tools/ring/guard"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/klog/v2"
)

// informed is what Reads lists, with the informer once the program has asked for it.
type informed struct {
	Read
	// isDefault says that Config.Reads does not list it.
	isDefault bool
	// subjects are those of the controller that works on these objects, nil if none does.
	subjects *guard.Subjects
	source   *rangewatch.Source
	filter   *rangewatch.Filter
}

// addRead adds what the program reads. What is a default gives way to what is listed already.
func (h *Host) addRead(read Read, isDefault bool) error {
	if err := read.checkObject(); err != nil {
		return err
	}
	if listed := h.read(read.Object); listed != nil {
		if isDefault {
			return nil
		}
		return fmt.Errorf("Reads lists %s twice", listed)
	}
	i := &informed{Read: read, isDefault: isDefault}
	h.reads = append(h.reads, i)
	h.missing["an informer of "+i.String()] = struct{}{}
	return nil
}

// String returns what is read, and by which key it is divided.
func (i *informed) String() string {
	name := fmt.Sprintf("%T", i.Object)
	if kind := i.Object.GetObjectKind().GroupVersionKind(); !kind.Empty() {
		name += " " + kind.GroupKind().String()
	}
	if i.By == Whole {
		return name + ", all"
	}
	return fmt.Sprintf("%s by %s", name, i.By)
}

// read returns what Reads lists for such objects, or nil.
func (h *Host) read(object runtime.Object) *informed {
	kind := object.GetObjectKind().GroupVersionKind()
	for _, i := range h.reads {
		listed := i.Object.GetObjectKind().GroupVersionKind()
		if reflect.TypeOf(i.Object) == reflect.TypeOf(object) && (listed == kind || listed.Empty() || kind.Empty()) {
			return i
		}
	}
	return nil
}

// NewInformer makes an informer that holds the instance's part of the objects, if the configuration
// lists them, and otherwise one that holds all of them, which no work waits for. It fits as
// NewInformer of controller-runtime's cache.Options. Handlers are told of what the gate is open
// for, as a rangewatch.Filter does. It is called once for each type of object; it panics if it is
// called for one that is listed again, or if that cannot be followed by ranges.
func (h *Host) NewInformer(lw cache.ListerWatcher, object runtime.Object, resync time.Duration, indexers cache.Indexers) cache.SharedIndexInformer {
	i := h.read(object)
	if i == nil {
		klog.Background().Info("Holds all objects of a type that the ring's configuration does not list, and waits for none of them", "type", fmt.Sprintf("%T", object), "ring", h.cfg.Ring)
		return cache.NewSharedIndexInformer(lw, object, resync, indexers)
	}
	if i.source != nil {
		panic(fmt.Sprintf("coding error: a second informer of %s was asked for; use the first, one cache, and all namespaces or one", i))
	}
	by := i.By
	if by == Whole {
		by = sharding.HashKeyPath
	}
	var err error
	i.source, err = rangewatch.NewSource(rangewatch.Config{
		Field:     by,
		ListWatch: lw,
		Object:    object,
		Behind: func(is bool) {
			for _, c := range h.controllers {
				c.subjects.Behind(is)
			}
		},
	})
	if err != nil {
		panic(fmt.Sprintf("an informer of %s: %v", i, err))
	}
	informer := i.source.NewInformer(cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: indexers})
	if i.By != Whole {
		i.filter = i.source.NewFilter()
		informer = i.filter.Informer(informer)
	}
	if s := i.subjects; s != nil {
		s.Indexer = informer.GetIndexer()
		if err := s.HearOf(informer); err != nil {
			panic(err) // the informer does not run yet, so this cannot happen
		}
		informer = s.Informer(informer)
	}
	h.asked("an informer of " + i.String())
	return informer
}

// asSource returns the informer as the ring sees it.
func (i *informed) asSource() member.Source {
	if i.By == Whole {
		return wholeSource{i.source, i}
	}
	return partSource{i.source, i}
}

// partSource is the source of an informer that holds a part of the objects.
type partSource struct {
	*rangewatch.Source
	read *informed
}

// String returns what is read.
func (s partSource) String() string { return s.read.String() }

// wholeSource is that of one that holds all objects while the instance has a range: for each range
// it waits until the informer has what the previous owner has seen.
type wholeSource struct {
	*rangewatch.Source
	read *informed
}

// String returns what is read.
func (s wholeSource) String() string { return s.read.String() }

// SetRanges implements member.Source.
func (s wholeSource) SetRanges(ranges hashkey.Ranges) {
	if !ranges.Empty() {
		ranges = hashkey.All()
	}
	s.Source.SetRanges(ranges)
}

// WaitFor implements member.Source.
func (s wholeSource) WaitFor(ctx context.Context, ranges hashkey.Ranges) error {
	if ranges.Empty() {
		return nil
	}
	return s.Source.WaitFor(ctx, hashkey.All())
}

// Keys implements member.Source. The objects are no load of a range.
func (s wholeSource) Keys(hashkey.Ranges) []int64 { return nil }
