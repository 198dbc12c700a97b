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

// Package validation says which ControllerInstances are valid.
package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimachineryvalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/hashkey"
	apisharding "k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientring "k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/fence"
	"k8s.io/kubernetes/pkg/apis/sharding"
)

const (
	minLeaseDurationSeconds = int32(fence.MinLease / time.Second)
	maxLeaseDurationSeconds = int32(fence.MaxLease / time.Second)

	holderIdentityMaxLength = 253

	maxControllers = 64
	maxGoverns     = 256

	// maxReason is in characters.
	maxReason = 1024

	// maxWork is all of the workers' time, in thousandths.
	maxWork = 1000

	// maxEpoch is the highest epoch. It takes 2^52 reports to come there, each as high as it may be.
	maxEpoch = int64(1) << 62
	// maxEpochStep is by how much one report may raise the epoch. An instance raises it once for each
	// handover and for each controller that it ceases to work on: this has room for 64 controllers,
	// and for hundreds of handovers whose reports were not stored.
	maxEpochStep = 1024

	// maxObjects is more than any process holds. Sums over a ring of a million instances stay within
	// an int64.
	maxObjects = int64(1) << 40
	// maxLiveBytes is more memory than any machine has.
	maxLiveBytes = int64(1) << 50

	// maxMetadata is in bytes, encoded, without annotations: those of every object have a bound of
	// 256 KiB. With all else of a record at its bounds that is half of what etcd stores in one
	// object, so nobody who writes metadata keeps an instance from its reports.
	maxMetadata = 64 << 10

	// maxRanges is far above what the caches of an instance hold: its own range, which the seam
	// of the ring can split in two, and one or two that are about to change hands.
	maxRanges = 64
)

var (
	holderIdentityFormat = `[A-Za-z0-9]([-A-Za-z0-9_.:]*[A-Za-z0-9])?`
	holderIdentityRegexp = regexp.MustCompile("^" + holderIdentityFormat + "$")

	hashKeyMessage       = fmt.Sprintf("must be between 0 and %d, inclusive", hashkey.Max)
	leaseDurationMessage = fmt.Sprintf("must be between %d and %d seconds, inclusive", minLeaseDurationSeconds, maxLeaseDurationSeconds)

	phases        = sets.New(sharding.InstanceInit, sharding.InstanceLocked, sharding.InstanceWait, sharding.InstanceActive, sharding.InstanceLeaving)
	governingKeys = sets.New(apisharding.GoverningKeys()...)
)

// validateName says what is wrong with the name of a ControllerInstance.
var validateName = apimachineryvalidation.NameIsDNSSubdomain

// ValidateControllerInstance validates a new ControllerInstance. Its status is not
// looked at: it is cleared on creation.
func ValidateControllerInstance(instance *sharding.ControllerInstance) field.ErrorList {
	errs := apimachineryvalidation.ValidateObjectMeta(&instance.ObjectMeta, false, validateName, field.NewPath("metadata"))
	errs = append(errs, validateSpec(&instance.Spec, instance.Name, field.NewPath("spec"))...)
	errs = append(errs, validateMetadata(instance, 0)...)
	return append(errs, validateReservedNames(instance)...)
}

// validateReservedNames requires that the instances of the rings of kube-controller-manager,
// and only those, have names that begin with the ring and "-": by these the API server knows
// that such an instance is registered. Neither the name nor the ring can change later.
func validateReservedNames(instance *sharding.ControllerInstance) field.ErrorList {
	name, ring := field.NewPath("metadata", "name"), instance.Spec.Ring
	var errs field.ErrorList
	for _, reserved := range clientring.ManagerRings {
		prefix := reserved + "-"
		named := strings.HasPrefix(instance.Name, prefix)
		if ring == reserved && instance.Name != "" && !named {
			errs = append(errs, field.Invalid(name, instance.Name, fmt.Sprintf("must begin with %q, as every instance of the ring %q of kube-controller-manager; set generateName to that instead", prefix, ring)))
		}
		if ring != reserved && named {
			errs = append(errs, field.Invalid(name, instance.Name, fmt.Sprintf("must not begin with %q, which is reserved for the ring %q of kube-controller-manager; use another name", prefix, reserved)))
		}
		if strings.HasPrefix(ring, prefix) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "ring"), ring, fmt.Sprintf("must not begin with %q, which is reserved for kube-controller-manager; use another ring", prefix)))
		}
	}
	return errs
}

// ValidateControllerInstanceUpdate validates a change of the spec or the metadata of a
// ControllerInstance.
func ValidateControllerInstanceUpdate(instance, old *sharding.ControllerInstance) field.ErrorList {
	spec := field.NewPath("spec")
	errs := apimachineryvalidation.ValidateObjectMetaUpdate(&instance.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	errs = append(errs, validateSpec(&instance.Spec, instance.Name, spec)...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.Ring, old.Spec.Ring, spec.Child("ring"))...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.HolderIdentity, old.Spec.HolderIdentity, spec.Child("holderIdentity"))...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.LeaseDurationSeconds, old.Spec.LeaseDurationSeconds, spec.Child("leaseDurationSeconds"))...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.Controllers, old.Spec.Controllers, spec.Child("controllers"))...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.Governs, old.Spec.Governs, spec.Child("governs"))...)
	errs = append(errs, apimachineryvalidation.ValidateImmutableField(instance.Spec.Held, old.Spec.Held, spec.Child("held"))...)
	return errs
}

// ValidateControllerInstanceStatusUpdate validates a change of the status of a
// ControllerInstance.
func ValidateControllerInstanceStatusUpdate(instance, old *sharding.ControllerInstance) field.ErrorList {
	errs := apimachineryvalidation.ValidateObjectMetaUpdate(&instance.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	status := field.NewPath("status")
	if apiequality.Semantic.DeepEqual(instance.Status, old.Status) {
		// A renewal is refused for nothing that is stored already.
		return errs
	}
	errs = append(errs, validateStatus(&instance.Status, status)...)
	errs = append(errs, validatePhase(instance, old, status.Child("phase"))...)
	errs = append(errs, validateControllerStates(instance.Status.Controllers, instance.Spec.Controllers, status.Child("controllers"))...)
	errs = append(errs, validateEpoch(instance, old, status.Child("epoch"))...)
	if instance.Status.Gives != nil {
		errs = append(errs, validateGift(instance, status.Child("gives"))...)
	}
	return errs
}

// ValidateControllerInstanceMetadataUpdate validates what others than the ring's instances do to
// the metadata of a ControllerInstance. It may not grow beyond its bound, whatever it consists of.
// Instances are not refused for what others have written there.
func ValidateControllerInstanceMetadataUpdate(instance, old *sharding.ControllerInstance) field.ErrorList {
	return validateMetadata(instance, metadataSize(old))
}

// validateMetadata bounds the metadata of an instance whose size was that before.
func validateMetadata(instance *sharding.ControllerInstance, before int) field.ErrorList {
	if size := metadataSize(instance); size > maxMetadata && size > before {
		return field.ErrorList{field.Invalid(field.NewPath("metadata"), fmt.Sprintf("%d bytes", size), fmt.Sprintf("may not be more than %d bytes without annotations, encoded: remove labels, finalizers, owner references or field managers", maxMetadata))}
	}
	return nil
}

// metadataSize is what maxMetadata bounds.
func metadataSize(instance *sharding.ControllerInstance) int {
	bounded := instance.ObjectMeta
	bounded.Annotations = nil
	return bounded.Size()
}

// validatePhase requires a phase that the instance can have by what it owns. The instance may have
// seen less of its record than the server has, never more: it learns that it owns a range later,
// and a range once owned is lost with the record only. So whatever is stored, its next report is
// valid.
func validatePhase(instance, old *sharding.ControllerInstance, path *field.Path) field.ErrorList {
	phase, before := instance.Status.Phase, old.Status.Phase
	works := func(phase sharding.InstancePhase) bool {
		return phase == sharding.InstanceActive || phase == sharding.InstanceWait
	}
	switch {
	case phase == "" && before == "":
		return nil
	case phase == "":
		return field.ErrorList{field.Required(path, fmt.Sprintf("an instance that has reported a phase always has one: it is %s", before))}
	case !phases.Has(phase):
		return field.ErrorList{field.NotSupported(path, phase, sets.List(phases))}
	case works(phase) && instance.Spec.HashKey == nil:
		return field.ErrorList{field.Invalid(path, phase, "must be Init, Locked or Leaving: the instance owns no range, as spec.hashKey is not set")}
	case phase == sharding.InstanceInit && works(before):
		return field.ErrorList{field.Invalid(path, phase, fmt.Sprintf("must not follow %s: the instance owns a range until its record goes", before))}
	}
	return nil
}

// validateEpoch requires an epoch that does not fall, and rises by a little at once: whatever one
// report says, there is room for all that follow.
func validateEpoch(instance, old *sharding.ControllerInstance, path *field.Path) field.ErrorList {
	epoch, before := instance.Status.Epoch, old.Status.Epoch
	switch {
	case epoch < 0 || epoch > maxEpoch:
		return field.ErrorList{field.Invalid(path, epoch, fmt.Sprintf("must be between 0 and %d, inclusive", maxEpoch))}
	case epoch < before:
		return field.ErrorList{field.Invalid(path, epoch, fmt.Sprintf("must not fall: it is %d already", before))}
	case epoch-before > maxEpochStep:
		return field.ErrorList{field.Invalid(path, epoch, fmt.Sprintf("must not rise by more than %d at once: it is %d now", maxEpochStep, before))}
	}
	return nil
}

func validateSpec(spec *sharding.ControllerInstanceSpec, name string, path *field.Path) field.ErrorList {
	errs := validateLabel(spec.Ring, path.Child("ring"), "the ring that the instance is on")

	switch holder := path.Child("holderIdentity"); {
	case spec.HolderIdentity == "":
		errs = append(errs, field.Required(holder, "the host and the process that run the instance"))
	case len(spec.HolderIdentity) > holderIdentityMaxLength:
		errs = append(errs, field.TooLong(holder, spec.HolderIdentity, holderIdentityMaxLength))
	case !holderIdentityRegexp.MatchString(spec.HolderIdentity):
		errs = append(errs, field.Invalid(holder, spec.HolderIdentity, utilvalidation.RegexError(
			"must consist of letters, digits, '-', '_', '.' and ':', and must start and end with a letter or a digit", holderIdentityFormat, "host-1_c3d3a1c6")))
	}

	if spec.LeaseDurationSeconds < minLeaseDurationSeconds || spec.LeaseDurationSeconds > maxLeaseDurationSeconds {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), spec.LeaseDurationSeconds, leaseDurationMessage))
	}

	if spec.HashKey != nil {
		errs = append(errs, validateHashKey(*spec.HashKey, path.Child("hashKey"))...)
	}
	if spec.NextHashKey != nil {
		errs = append(errs, validateHashKey(*spec.NextHashKey, path.Child("nextHashKey"))...)
		if spec.HashKey != nil && *spec.NextHashKey == *spec.HashKey {
			errs = append(errs, field.Invalid(path.Child("nextHashKey"), *spec.NextHashKey, "must differ from hashKey, or be unset when no move is under way"))
		}
	}

	if spec.PinnedHashKey != nil {
		errs = append(errs, validateHashKey(*spec.PinnedHashKey, path.Child("pinnedHashKey"))...)
	}
	if spec.Balance != "" && spec.Balance != sharding.BalanceDisabled {
		errs = append(errs, field.NotSupported(path.Child("balance"), spec.Balance, []sharding.Balance{sharding.BalanceDisabled}))
	}

	if spec.Donor != "" {
		for _, msg := range validateName(spec.Donor, false) {
			errs = append(errs, field.Invalid(path.Child("donor"), spec.Donor, msg))
		}
		if spec.Donor == name {
			errs = append(errs, field.Invalid(path.Child("donor"), spec.Donor, "must be the name of another ControllerInstance"))
		}
	}

	errs = append(errs, validateControllers(spec.Controllers, path.Child("controllers"))...)
	errs = append(errs, validateGoverns(spec.Governs, path.Child("governs"))...)
	errs = append(errs, validateRanges(spec.Held, path.Child("held"))...)
	return errs
}

func validateControllers(controllers []string, path *field.Path) field.ErrorList {
	if n := len(controllers); n > maxControllers {
		return field.ErrorList{field.TooMany(path, n, maxControllers)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, controller := range controllers {
		errs = append(errs, validateLabel(controller, path.Index(i), "the name of a controller")...)
		if seen.Has(controller) {
			errs = append(errs, field.Duplicate(path.Index(i), controller))
		}
		seen.Insert(controller)
	}
	return errs
}

func validateGoverns(lines []sharding.Governs, path *field.Path) field.ErrorList {
	if n := len(lines); n > maxGoverns {
		return field.ErrorList{field.TooMany(path, n, maxGoverns)}
	}
	var errs field.ErrorList
	for i, line := range lines {
		at := path.Index(i)
		if line.Controller != "*" {
			errs = append(errs, validateLabel(line.Controller, at.Child("controller"), "the controller that writes, or \"*\" for every one")...)
		}
		if line.Group != "" && line.Group != "*" {
			for _, msg := range utilvalidation.IsDNS1123Subdomain(line.Group) {
				errs = append(errs, field.Invalid(at.Child("group"), line.Group, msg))
			}
		}
		if line.Resource != "*" {
			errs = append(errs, validateLabel(line.Resource, at.Child("resource"), "the plural name of a resource, or \"*\" for every one")...)
		}
		if !governingKeys.Has(string(line.By)) {
			errs = append(errs, field.NotSupported(at.Child("by"), line.By, sets.List(governingKeys)))
		}
	}
	return errs
}

// validateLabel requires a DNS label, and says what it is for where there is none.
func validateLabel(value string, path *field.Path, purpose string) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, purpose)}
	}
	var errs field.ErrorList
	for _, msg := range utilvalidation.IsDNS1123Label(value) {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

func validateStatus(status *sharding.ControllerInstanceStatus, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, validateRanges(status.Cached, path.Child("cached"))...)
	errs = append(errs, validateCount(status.Weight, maxObjects, path.Child("weight"))...)
	errs = append(errs, validateCount(status.Busy, maxObjects, path.Child("busy"))...)
	// Negative counts, and those that are too large, are named alone.
	if n, counted := validateCount(status.Heaviest, maxObjects, path.Child("heaviest")), validateCount(status.BeforeHeaviest, maxObjects, path.Child("beforeHeaviest")); len(n)+len(counted) > 0 {
		errs = append(append(errs, n...), counted...)
	} else if status.Heaviest+status.BeforeHeaviest > max(status.Weight, 0) {
		errs = append(errs, field.Invalid(path.Child("heaviest"), status.Heaviest, fmt.Sprintf("must not be more than weight (%d) with beforeHeaviest (%d)", status.Weight, status.BeforeHeaviest)))
	}
	if heap := status.Heap; heap != nil {
		errs = append(errs, validateCount(heap.LiveBytes, maxLiveBytes, path.Child("heap", "liveBytes"))...)
		errs = append(errs, validateCount(heap.Objects, maxObjects, path.Child("heap", "objects"))...)
	}
	return append(errs, validateCount(int64(status.Work), maxWork, path.Child("work"))...)
}

func validateCount(n, most int64, path *field.Path) field.ErrorList {
	if n < 0 || n > most {
		return field.ErrorList{field.Invalid(path, n, fmt.Sprintf("must be between 0 and %d, inclusive", most))}
	}
	return nil
}

// validateControllerStates requires states of controllers that the spec lists, one of each.
func validateControllerStates(states []sharding.ControllerState, listed []string, path *field.Path) field.ErrorList {
	if n := len(states); n > maxControllers {
		return field.ErrorList{field.TooMany(path, n, maxControllers)}
	}
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, state := range states {
		name := path.Index(i).Child("name")
		invalid := validateLabel(state.Name, name, "the name of a controller")
		if len(invalid) == 0 && !slices.Contains(listed, state.Name) {
			invalid = field.ErrorList{field.Invalid(name, state.Name, "must be one of spec.controllers")}
		}
		errs = append(errs, invalid...)
		if seen.Has(state.Name) {
			errs = append(errs, field.Duplicate(name, state.Name))
		}
		seen.Insert(state.Name)
		if utf8.RuneCountInString(state.Reason) > maxReason {
			errs = append(errs, field.TooLongCharacters(path.Index(i).Child("reason"), state.Reason, maxReason))
		}
	}
	return errs
}

// validateGift requires a gift of who owns a range, raised its epoch in the report that says so,
// and keeps its own end of the range unless it gives its upper part.
func validateGift(instance *sharding.ControllerInstance, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	gift := instance.Status.Gives
	switch own := instance.Spec.HashKey; {
	case own == nil:
		errs = append(errs, field.Forbidden(path, "an instance that owns no range, as spec.hashKey is not set, gives nothing"))
	case instance.Status.Epoch == 0:
		errs = append(errs, field.Invalid(path, gift.To, "nothing is given in epoch 0: the report that says what is given raises status.epoch"))
	case gift.To != instance.Name && gift.HashKey == *own:
		errs = append(errs, field.Invalid(path.Child("hashKey"), gift.HashKey, "must differ from spec.hashKey, the giver's own, which it gives to nobody else"))
	}
	if gift.To == "" {
		errs = append(errs, field.Required(path.Child("to"), "the name of the ControllerInstance whose hashKey is granted"))
	} else {
		for _, msg := range validateName(gift.To, false) {
			errs = append(errs, field.Invalid(path.Child("to"), gift.To, msg))
		}
	}
	return append(errs, validateHashKey(gift.HashKey, path.Child("hashKey"))...)
}

func validateRanges(ranges []sharding.HashKeyRange, path *field.Path) field.ErrorList {
	if n := len(ranges); n > maxRanges {
		return field.ErrorList{field.TooMany(path, n, maxRanges)}
	}
	var errs field.ErrorList
	for i, r := range ranges {
		at := path.Index(i)
		errs = append(errs, validateHashKey(r.First, at.Child("first"))...)
		errs = append(errs, validateHashKey(r.Last, at.Child("last"))...)
		if r.First > r.Last {
			errs = append(errs, field.Invalid(at.Child("last"), r.Last, fmt.Sprintf("must not be below first (%d)", r.First)))
		}
		if i > 0 && r.First <= ranges[i-1].Last {
			errs = append(errs, field.Invalid(at.Child("first"), r.First,
				fmt.Sprintf("must be above the last key of the range before it (%d): ranges are in ascending order and do not overlap", ranges[i-1].Last)))
		}
	}
	return errs
}

func validateHashKey(key int64, path *field.Path) field.ErrorList {
	// Keys above the highest are no int64.
	if key < 0 {
		return field.ErrorList{field.Invalid(path, key, hashKeyMessage)}
	}
	return nil
}
