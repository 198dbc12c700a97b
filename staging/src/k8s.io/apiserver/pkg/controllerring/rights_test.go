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
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/tools/ring/fence"
)

func TestWhoMayWriteTheRecordsOfARing(t *testing.T) {
	const none = ""
	for what, tc := range map[string]struct {
		allowed string
		named   string
		broken  string
		want    bool
		failed  bool
		// asked are the verbs that the authorizer was asked for.
		asked []string
	}{
		"nobody":                             {allowed: none, asked: []string{"work", "steer"}},
		"who may work on it":                 {allowed: "work r", want: true, asked: []string{"work"}},
		"who may steer it":                   {allowed: "steer r", want: true, asked: []string{"work", "steer"}},
		"who may work on another":            {allowed: "work q", asked: []string{"work", "steer"}},
		"who may steer another":              {allowed: "steer q", asked: []string{"work", "steer"}},
		"who may do something else with it":  {allowed: "get r", asked: []string{"work", "steer"}},
		"an instance of it, asks nobody":     {named: "r", want: true},
		"an instance of another":             {named: "q", asked: []string{"work", "steer"}},
		"an instance of another, allowed":    {named: "q", allowed: "steer r", want: true, asked: []string{"work", "steer"}},
		"one right unknown, the other given": {broken: "work", allowed: "steer r", want: true, asked: []string{"work", "steer"}},
		"one right unknown, the other not":   {broken: "work", failed: true, asked: []string{"work", "steer"}},
		"the other right unknown":            {broken: "steer", failed: true, asked: []string{"work", "steer"}},
	} {
		t.Run(what, func(t *testing.T) {
			var asked []string
			a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked = append(asked, a.GetVerb())
				switch {
				case a.GetUser().GetName() != "somebody" || a.GetAPIGroup() != "sharding.k8s.io" || a.GetResource() != "rings" || !a.IsResourceRequest():
					t.Errorf("asked for %+v", a)
				case a.GetVerb() == tc.broken:
					return authorizer.DecisionNoOpinion, "", errors.New("no answer")
				case a.GetVerb()+" "+a.GetName() == tc.allowed:
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			})
			ctx := t.Context()
			if tc.named != none {
				ctx = NewContext(ctx, fence.Identity{Ring: tc.named, Name: "a"})
			}
			got, err := MayWriteRecords(ctx, a, &user.DefaultInfo{Name: "somebody"}, "r")
			if got != tc.want || tc.failed != apierrors.IsInternalError(err) || !tc.failed && err != nil {
				t.Errorf("got %t, %v; want %t, with an error: %t", got, err, tc.want, tc.failed)
			}
			if !slices.Equal(asked, tc.asked) {
				t.Errorf("asked for %q, want %q", asked, tc.asked)
			}
		})
	}
	if got, err := MayWriteRecords(t.Context(), nil, &user.DefaultInfo{}, "r"); !got || err != nil {
		t.Errorf("without an authorizer: %t, %v", got, err)
	}
}

// Who steers does not say what an instance reports.
func TestWhoMayWriteTheStatusOfARecord(t *testing.T) {
	for what, tc := range map[string]struct {
		allowed, named string
		want           bool
	}{
		"nobody":                         {},
		"who may work on it":             {allowed: "work r", want: true},
		"who may steer it":               {allowed: "steer r"},
		"who may work on another":        {allowed: "work q"},
		"an instance of it":              {named: "r", want: true},
		"an instance of another, steers": {named: "q", allowed: "steer r"},
	} {
		a := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
			if a.GetVerb()+" "+a.GetName() == tc.allowed {
				return authorizer.DecisionAllow, "", nil
			}
			return authorizer.DecisionNoOpinion, "", nil
		})
		ctx := t.Context()
		if tc.named != "" {
			ctx = NewContext(ctx, fence.Identity{Ring: tc.named, Name: "a"})
		}
		if got, err := MayWriteStatus(ctx, a, &user.DefaultInfo{Name: "somebody"}, "r"); got != tc.want || err != nil {
			t.Errorf("%s: %t, %v; want %t", what, got, err, tc.want)
		}
	}
}
