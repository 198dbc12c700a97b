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

// Package storage stores ControllerInstances, each under its own etcd lease.
package storage

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/controllerring"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/fenced"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
	"k8s.io/kubernetes/pkg/registry/sharding/controllerinstance"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// REST serves controllerinstances.
type REST struct {
	*genericregistry.Store
	// prefix is that of the storage in etcd.
	prefix string
}

var _ rest.ShortNamesProvider = &REST{}

// NewREST returns the storage that serves controllerinstances, and that of their status.
func NewREST(optsGetter generic.RESTOptionsGetter) (*REST, *StatusREST, error) {
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &sharding.ControllerInstance{} },
		NewListFunc:               func() runtime.Object { return &sharding.ControllerInstanceList{} },
		PredicateFunc:             controllerinstance.Match,
		DefaultQualifiedResource:  sharding.Resource("controllerinstances"),
		SingularQualifiedResource: sharding.Resource("controllerinstance"),

		CreateStrategy:      controllerinstance.Strategy,
		UpdateStrategy:      controllerinstance.Strategy,
		DeleteStrategy:      controllerinstance.Strategy,
		ResetFieldsStrategy: controllerinstance.Strategy,

		TableConvertor: tableConvertor{printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}},
	}
	prefix := ""
	options := &generic.StoreOptions{RESTOptions: leasedOptions{optsGetter, &prefix}, AttrFunc: controllerinstance.GetAttrs}
	if err := store.CompleteWithOptions(options); err != nil {
		return nil, nil, err
	}

	statusStore := *store
	statusStore.Storage.Storage = leasedStorage{Interface: store.Storage.Storage.(leasedStorage).Interface, renews: true}
	statusStore.UpdateStrategy = controllerinstance.StatusStrategy
	statusStore.ResetFieldsStrategy = controllerinstance.StatusStrategy

	return &REST{store, prefix}, &StatusREST{&statusStore}, nil
}

// ShortNames returns the short names of the resource.
func (*REST) ShortNames() []string { return []string{"ci"} }

// Delete asks an instance that owns a range to leave; see Strategy.CheckGracefulDelete. The
// delete that an instance sends of its own record says that it has left: the record goes at
// once, whatever finalizers it has. Nobody would work on its range while it stays.
func (r *REST) Delete(ctx context.Context, name string, deleteValidation rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	self, ok := controllerring.FromContext(ctx)
	own := ok && self.Name == name && options != nil
	if own {
		// If that is another registration of the same name, the fence refuses the delete.
		options.GracePeriodSeconds = ptr.To[int64](0)
	}
	obj, deleted, err := r.Store.Delete(ctx, name, deleteValidation, options)
	if err != nil || deleted || !own || len(options.DryRun) > 0 {
		return obj, deleted, err
	}
	obj, _, err = r.Store.Update(ctx, name, rest.DefaultUpdatedObjectInfo(nil, withoutFinalizers),
		rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	return obj, err == nil, err
}

// Watch watches records. A watch that is to be the presence of an instance is told to the other API
// servers before it begins, and its end opens an inquest.
func (r *REST) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	self, named := controllerring.FromContext(ctx)
	why, client, present := controllerring.PresenceFrom(ctx)
	if !named || !present {
		return r.Store.Watch(ctx, options)
	}
	presence, err := fenced.OpenPresence(ctx, r.prefix, self, why, r.noteEnd)
	if err != nil {
		return nil, err
	}
	watching, err := r.Store.Watch(ctx, options)
	if err != nil {
		// The instance opens another, which is the newest then.
		return nil, err
	}
	return &presentWatch{Interface: watching, client: client, presence: presence}, nil
}

// noteEnd is a fenced.Note. The record stays under its lease.
func (r *REST) noteEnd(ctx context.Context, self fence.Identity, revision int64, ended time.Time) (int64, error) {
	key, err := r.KeyFunc(ctx, self.Name)
	if err != nil {
		return 0, err
	}
	note := func(object runtime.Object) (runtime.Object, error) {
		record := object.(*sharding.ControllerInstance)
		record.Status.PresenceEnded = nil
		if !ended.IsZero() {
			record.Status.PresenceEnded = ptr.To(metav1.NewMicroTime(ended))
		}
		return record, nil
	}
	noted, still := &sharding.ControllerInstance{}, storage.Preconditions{UID: &self.UID, ResourceVersion: ptr.To(strconv.FormatInt(revision, 10))}
	err = r.Storage.Storage.GuaranteedUpdate(ctx, key, noted, false, &still, storage.SimpleUpdate(note), nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(noted.ResourceVersion, 10, 64)
}

// presentWatch is the presence of an instance.
type presentWatch struct {
	watch.Interface
	client   context.Context
	presence *fenced.Presence
	stop     sync.Once
}

// Stop implements watch.Interface. If the server ends the watch itself, it does so before the
// request is over.
func (w *presentWatch) Stop() {
	w.stop.Do(func() {
		if w.client.Err() != nil {
			w.presence.Ended()
		}
		w.Interface.Stop()
	})
}

// withoutFinalizers returns the object without finalizers.
func withoutFinalizers(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
	instance := old.(*sharding.ControllerInstance).DeepCopy()
	instance.Finalizers = nil
	return instance, nil
}

// StatusREST serves the status of controllerinstances.
type StatusREST struct {
	store *genericregistry.Store
}

var (
	_ rest.Patcher             = &StatusREST{}
	_ rest.ResetFieldsStrategy = &StatusREST{}
)

// New returns an empty ControllerInstance.
func (*StatusREST) New() runtime.Object { return &sharding.ControllerInstance{} }

// Destroy does nothing: REST owns the storage and destroys it.
func (*StatusREST) Destroy() {}

// Get returns the whole object, which a patch of the status needs.
func (r *StatusREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update changes the status of an object. It never creates one. An update that changes
// nothing renews the object's lease instead. One that names another UID is a conflict.
func (r *StatusREST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	objInfo = rest.WrapUpdatedObjectInfo(objInfo, checkUID)
	return r.store.Update(ctx, name, objInfo, createValidation, updateValidation, false, options)
}

// checkUID makes a conflict of a change meant for another object of the same name. A patch
// states no precondition, and its UID would be judged as an invalid value.
func checkUID(_ context.Context, obj, old runtime.Object) (runtime.Object, error) {
	instance, oldInstance := obj.(*sharding.ControllerInstance), old.(*sharding.ControllerInstance)
	if instance.UID != "" && instance.UID != oldInstance.UID {
		return nil, apierrors.NewConflict(sharding.Resource("controllerinstances"), oldInstance.Name,
			fmt.Errorf("the UID in the request is %s, that of the ControllerInstance is %s", instance.UID, oldInstance.UID))
	}
	return obj, nil
}

// GetResetFields returns the fields that an update of the status cannot set.
func (r *StatusREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.store.GetResetFields()
}

// ConvertToTable returns the object as a row of a table.
func (r *StatusREST) ConvertToTable(ctx context.Context, object runtime.Object, tableOptions runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, tableOptions)
}
