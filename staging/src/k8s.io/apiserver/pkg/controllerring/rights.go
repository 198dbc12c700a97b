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

package controllerring

import (
	"context"
	"fmt"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/ring/fence"
)

// SteerVerb is the right of people to change and delete the records of a ring's instances, but for
// what the instances report of themselves, the status: the verb on fence.Resource of the group
// sharding.k8s.io, with the ring as the name of the object. fence.Verb includes it, and lets its
// holder write the status, and in the name of the instances, too.
const SteerVerb = "steer"

// MayWriteRecords says whether the request may change or delete records of the ring: it names one
// of the ring's instances, as only who may work on the ring can, or its user may work on the ring
// or steer it. A request that names an instance is not authorized again, since each instance renews
// its record every few seconds. Without an authorizer everybody may.
func MayWriteRecords(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, ring string) (bool, error) {
	return mayWrite(ctx, a, who, ring, fence.Verb, SteerVerb)
}

// MayWriteStatus says the same of the status of records. It is what the fence and the other
// instances believe, so it is written by the instances and by who may work on the ring; to steer is
// not enough.
func MayWriteStatus(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, ring string) (bool, error) {
	return mayWrite(ctx, a, who, ring, fence.Verb)
}

// mayWrite says whether the request names an instance of the ring, or its user has one of the
// verbs.
func mayWrite(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, ring string, verbs ...string) (bool, error) {
	if instance, named := FromContext(ctx); named && instance.Ring == ring {
		return true, nil
	}
	var failure error
	for _, verb := range verbs {
		allowed, _, err := may(ctx, a, who, verb, ring)
		if allowed {
			return true, nil
		}
		if err != nil {
			failure = err
		}
	}
	return false, failure
}

// may says whether the user has that right on the ring, and why not, if the authorizer tells. The
// error is an answer to the request.
func may(ctx context.Context, a authorizer.UnconditionalAuthorizer, who user.Info, verb, ring string) (bool, string, error) {
	if a == nil {
		return true, "", nil
	}
	decision, reason, err := a.Authorize(ctx, attributes(who, verb, ring))
	if decision == authorizer.DecisionAllow {
		return true, "", nil
	}
	if err != nil {
		err = apierrors.NewInternalError(fmt.Errorf("whether the user has the verb %q on ring %s cannot be decided: %w", verb, ring, err))
	}
	return false, reason, err
}

func attributes(who user.Info, verb, ring string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User:            who,
		Verb:            verb,
		APIGroup:        shardingv1alpha1.GroupName,
		APIVersion:      shardingv1alpha1.SchemeGroupVersion.Version,
		Resource:        fence.Resource,
		Name:            ring,
		ResourceRequest: true,
	}
}
