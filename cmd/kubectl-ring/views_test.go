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
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	shardingv1alpha1 "k8s.io/api/sharding/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/ring"
	"k8s.io/client-go/tools/ring/member"
	"k8s.io/client-go/util/cert"
)

// manager is the /ringz of a controller manager.
type manager struct {
	*httptest.Server
	// process is what it answers, with that status.
	process func() member.Process
	status  int
	// got is the last request.
	got atomic.Pointer[http.Request]
}

func newManager(t *testing.T) *manager {
	m := &manager{status: http.StatusOK}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.got.Store(r)
		w.WriteHeader(m.status)
		_ = json.NewEncoder(w).Encode(m.process())
	}))
	m.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	m.StartTLS()
	t.Cleanup(m.Close)
	return m
}

// holder is what an instance of the manager has in spec.holderIdentity.
func (m *manager) holder() string { return m.Listener.Addr().String() + "_1_x" }

// own returns what an instance shows that sees the ring as it is.
func own(t *testing.T, self *shardingv1alpha1.ControllerInstance, all ...runtime.Object) member.Snapshot {
	t.Helper()
	var records []ring.Record
	for _, i := range all {
		record, err := ring.NewRecord(i.(*shardingv1alpha1.ControllerInstance))
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, record)
	}
	view := ring.NewView(1, records...)
	return member.Snapshot{
		Ring: self.Spec.Ring, Holder: self.Spec.HolderIdentity, Name: self.Name, UID: self.UID, Phase: self.Status.Phase,
		Revision: 1, Owned: view.Owned(self.Name).String(), Records: member.RecordStates(view.Records()),
		BelievesForSeconds: 4, Open: view.Owned(self.Name).String(),
		Doors: []member.DoorState{{Controller: "replicaset-controller", Open: view.Owned(self.Name).String()}},
	}
}

func testAsker(t *testing.T, config *rest.Config, authority string) *asker {
	t.Helper()
	a, err := newAsker(config, authority, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a.settle = 40 * time.Millisecond
	return a
}

func TestWhatIsRecordedIsAskedForOnlyForABundle(t *testing.T) {
	m := newManager(t)
	m.process = func() member.Process { return member.Process{} }
	a := testAsker(t, &rest.Config{}, "")
	for recorded, want := range map[bool]string{false: "", true: "recording=true"} {
		a.recorded = recorded
		if got := a.ask(t.Context(), m.Listener.Addr().String()); got.err != nil || m.got.Load().URL.RawQuery != want {
			t.Errorf("asks with %q, %v; want %q", m.got.Load().URL.RawQuery, got.err, want)
		}
	}
}

func TestViews(t *testing.T) {
	const half = 1 << 62
	for name, tc := range map[string]struct {
		// change changes what the second of two instances shows, at each question from the first.
		change func(n int64, own *member.Snapshot)
		status int
		want   string
		fails  bool
	}{
		"agrees": {
			want: "yes\nAll instances agree with the registry: 2.\n",
		},
		"lags for a moment": {
			change: func(n int64, own *member.Snapshot) {
				if n == 1 {
					own.Records = own.Records[:1]
				}
			},
			want: "All instances agree with the registry: 2.\n",
		},
		"does not know an instance": {
			change: func(_ int64, own *member.Snapshot) { own.Records = own.Records[1:] },
			want:   "no: it does not know a\n", fails: true,
		},
		"knows one that is gone": {
			change: func(_ int64, own *member.Snapshot) {
				own.Records = append(own.Records, member.RecordState{Name: "z"})
			},
			want: "no: it knows z, which is gone\n", fails: true,
		},
		"sees another boundary": {
			change: func(_ int64, own *member.Snapshot) { own.Records[0].HashKey = "0000000000000001" },
			want:   "no: for it the key of a is 0000000000000001, registry: 3fffffffffffffff\n", fails: true,
		},
		"has another phase and range": {
			change: func(_ int64, own *member.Snapshot) {
				own.Phase, own.Owned, own.Revision = shardingv1alpha1.InstanceLocked, "nothing", 0
			},
			want: "0          1     Locked (registry: Active)   nothing                                no: it is in phase Locked, registry: Active; it owns nothing, registry: (3fffffffffffffff, 7fffffffffffffff]\n", fails: true,
		},
		"hangs": {
			change: func(_ int64, own *member.Snapshot) { own.RoundAgeSeconds = 75.3 },
			want:   "no: it has decided nothing for 1m15s\n", fails: true,
		},
		"has no lease": {
			change: func(_ int64, own *member.Snapshot) { own.BelievesForSeconds = 0 },
			want:   "no: it takes its lease to have ended, and begins no work\n", fails: true,
		},
		"may send nothing": {
			change: func(_ int64, own *member.Snapshot) { own.Barred = "another leads" },
			want:   "no: none of its controllers may send a request: another leads\n", fails: true,
		},
		"has its gate shut": {
			change: func(_ int64, own *member.Snapshot) { own.Open, own.Doors = "nothing", nil },
			want:   "no: its gate is open for nothing\n", fails: true,
		},
		"has its gate shut for a controller": {
			change: func(_ int64, own *member.Snapshot) { own.Doors[0].Open = "nothing" },
			want:   "no: its gate is shut for replicaset-controller\n", fails: true,
		},
		"has its gate shut for one that it does not work on": {
			change: func(_ int64, own *member.Snapshot) {
				own.Doors = append(own.Doors, member.DoorState{Controller: "deployment-controller", Open: "nothing"})
			},
			want: "All instances agree with the registry: 2.\n",
		},
		"differs in much": {
			change: func(_ int64, own *member.Snapshot) {
				for i := range own.Records {
					own.Records[i].UID = "other"
				}
				own.Phase, own.Owned = "", "nothing"
			},
			want: "registry: Active; and 1 more\n", fails: true,
		},
		"controls the terminal": {
			change: func(_ int64, own *member.Snapshot) { own.Phase = "\x1b[2J\t\n" },
			want:   `  \u001b[2J\t\n (registry: Active)`, fails: true,
		},
		"another process": {
			change: func(_ int64, own *member.Snapshot) { own.Holder = "h_2_y" },
			want:   "not known: another process answers there: h_2_y\n", fails: true,
		},
		"another registration": {
			change: func(_ int64, own *member.Snapshot) { own.Name = "c" },
			want:   "not known: its process is registered as c now\n", fails: true,
		},
		"no registration": {
			change: func(_ int64, own *member.Snapshot) { own.Name = "" },
			want:   "not known: its process is not registered on the ring any more\n", fails: true,
		},
		"on no ring": {
			change: func(_ int64, own *member.Snapshot) { own.Ring = "claims" },
			want:   "not known: its process is not on the ring\n", fails: true,
		},
		"forbids it": {
			status: http.StatusForbidden,
			want:   "not known: it answered 403 Forbidden to the kubeconfig's client certificate; a token is sent only with --controllers-ca\n", fails: true,
		},
		"is older": {
			status: http.StatusNotFound,
			want:   "not known: it has no /ringz", fails: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, second := newManager(t), newManager(t)
			a, b := worker("a", "workloads", half-1), worker("b", "workloads", math.MaxInt64)
			a.Spec.HolderIdentity, b.Spec.HolderIdentity, b.UID = first.holder(), second.holder(), "uid-b"
			first.process = func() member.Process {
				return member.Process{Instances: []member.Snapshot{own(t, a, a, b)}}
			}
			var asked atomic.Int64
			second.process = func() member.Process {
				s := own(t, b, a, b)
				if n := asked.Add(1); tc.change != nil {
					tc.change(n, &s)
				}
				return member.Process{Instances: []member.Snapshot{s}}
			}
			if tc.status != 0 {
				second.status = tc.status
			}
			var out strings.Builder
			err := views(t.Context(), fake.NewClientset(a, b), testAsker(t, &rest.Config{}, ""), []string{"workloads"}, "", &out)
			if !strings.Contains(out.String(), tc.want) || !strings.Contains(out.String(), "INSTANCE ") {
				t.Errorf("got\n%swant %q", out.String(), tc.want)
			}
			if tc.fails && (err == nil || err.Error() != "1 of 2 instances do not agree with the registry, or could not be asked") || !tc.fails && err != nil {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestViewsOfProcessesThatDoNotAnswer(t *testing.T) {
	t.Parallel()
	gone, slow := newManager(t), newManager(t)
	gone.Close()
	goOn := make(chan struct{})
	defer close(goOn)
	slow.process = func() member.Process { <-goOn; return member.Process{} }
	a, b, c := worker("a", "workloads", 1<<61), worker("b", "workloads", 1<<62), worker("c", "workloads", math.MaxInt64)
	a.Spec.HolderIdentity, b.Spec.HolderIdentity, b.UID, c.UID = gone.holder(), slow.holder(), "uid-b", "uid-c"
	asker := testAsker(t, &rest.Config{}, "")
	asker.client.Timeout = time.Second
	var out strings.Builder
	err := views(t.Context(), fake.NewClientset(a, b, c), asker, nil, "", &out)
	if err == nil || err.Error() != "3 of 3 instances do not agree with the registry, or could not be asked" {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{"connection refused\n", "not known: no answer within 1s\n", "not known: its holder names no host and port"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// What even out the load differently may undo each other's moves.
func TestViewsSayWhereSettingsDiffer(t *testing.T) {
	first, second := newManager(t), newManager(t)
	a, b := worker("a", "workloads", 1<<62), worker("b", "workloads", math.MaxInt64)
	a.Spec.HolderIdentity, b.Spec.HolderIdentity, b.UID = first.holder(), second.holder(), "uid-b"
	with := func(self *shardingv1alpha1.ControllerInstance, state member.BalanceState) func() member.Process {
		return func() member.Process {
			s := own(t, self, a, b)
			s.Balance = state
			return member.Process{Instances: []member.Snapshot{s}}
		}
	}
	state := func(mode string, tolerance float64) member.BalanceState {
		return member.BalanceState{Mode: mode, TolerancePercent: tolerance, KeysPercentPerMinute: tolerance / 2}
	}
	first.process = with(a, state(member.BalanceEnabled, 10))
	const differ = "workloads: the settings files even out the load in different ways: "
	for other, want := range map[member.BalanceState]string{
		state(member.BalanceEnabled, 10): "",
		state(member.BalanceDisabled, 0): differ + "Disabled at b; Enabled, tolerance 10%, 5% of all keys a minute at a\n",
		state(member.BalanceEnabled, 20): differ + "Enabled, tolerance 10%, 5% of all keys a minute at a; Enabled, tolerance 20%, 10% of all keys a minute at b\n",
		// It is older.
		{}: "",
	} {
		second.process = with(b, other)
		var out strings.Builder
		err := views(t.Context(), fake.NewClientset(a, b), testAsker(t, &rest.Config{}, ""), nil, "", &out)
		if _, rest, _ := strings.Cut(out.String(), "yes\nb "); err != nil || !strings.HasSuffix(rest, "yes\n"+want+"All instances agree with the registry: 2.\n") {
			t.Errorf("%s: got %v, and\n%s", other, err, out.String())
		}
	}
}

func TestNotAllInstancesWithTheSameSettingsAreNamed(t *testing.T) {
	var r ringViews
	for i := range 6 {
		mode := member.BalanceEnabled
		if i == 5 {
			mode = member.BalanceDisabled
		}
		r.Instances = append(r.Instances, instanceView{Name: fmt.Sprint(i), Own: &member.Snapshot{Balance: member.BalanceState{Mode: mode}}})
	}
	if got := differentBalance(r); !strings.HasSuffix(got, ": Disabled at 5; Enabled at 0, 1, 2 and 2 more") {
		t.Errorf("got %q", got)
	}
}

func TestAnOperatorIsAskedForItsViewsOnlyByName(t *testing.T) {
	m := newManager(t)
	a, b := worker("a", "workloads", math.MaxInt64), worker("b", "machines", math.MaxInt64)
	a.Spec.HolderIdentity, b.UID = m.holder(), "uid-b"
	m.process = func() member.Process { return member.Process{Instances: []member.Snapshot{own(t, a, a)}} }
	client := fake.NewClientset(a, b)
	var out strings.Builder
	if err := views(t.Context(), client, testAsker(t, &rest.Config{}, ""), nil, "", &out); err != nil || !strings.HasSuffix(out.String(), "All instances agree with the registry: 1.\n") {
		t.Errorf("got %v, and\n%s", err, out.String())
	}
	if err := views(t.Context(), client, testAsker(t, &rest.Config{}, ""), []string{"machines"}, "", &out); err == nil || !strings.Contains(out.String(), "names no host and port") {
		t.Errorf("got %v, and\n%s", err, out.String())
	}
}

func TestViewsForPrograms(t *testing.T) {
	m := newManager(t)
	a := worker("a", "workloads", math.MaxInt64)
	a.Spec.HolderIdentity = m.holder()
	m.process = func() member.Process { return member.Process{Instances: []member.Snapshot{own(t, a, a)}} }
	var out strings.Builder
	if err := views(t.Context(), fake.NewClientset(a), testAsker(t, &rest.Config{}, ""), nil, "json", &out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Rings []ringViews }
	if err := json.Unmarshal([]byte(out.String()), &got); err != nil || len(got.Rings) != 1 || len(got.Rings[0].Instances) != 1 || !got.Rings[0].Instances[0].Agrees || got.Rings[0].Instances[0].Own.Name != "a" {
		t.Errorf("got %v, and %s", err, out.String())
	}
}

func TestViewsOfRingsWithoutInstances(t *testing.T) {
	for name, want := range map[string]string{"": "No ring has instances that can be asked.\n", "claims": "No instance is on the ring claims.\n", "x": ""} {
		var names []string
		if name != "" {
			names = []string{name}
		}
		var out strings.Builder
		err := views(t.Context(), fake.NewClientset(), testAsker(t, &rest.Config{}, ""), names, "", &out)
		if out.String() != want || (err != nil) != (want == "") {
			t.Errorf("of %q: got %v, and %q", name, err, out.String())
		}
	}
}

// An unverified server could be anybody's, and a token would be its to use.
func TestOnlyAVerifiedProcessGetsAToken(t *testing.T) {
	m := newManager(t)
	m.process = func() member.Process { return member.Process{} }
	address := m.Listener.Addr().String()
	certificate, key, err := cert.GenerateSelfSignedCertKey("me", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CertData: certificate, KeyData: key, CAData: certificate, ServerName: "api"}}
	authority := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: m.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, token := range map[string]string{"": "", authority: "Bearer secret"} {
		if got := testAsker(t, config, file).ask(t.Context(), address); got.err != nil {
			t.Fatal(got.err)
		}
		if got := m.got.Load().Header.Get("Authorization"); got != token || len(m.got.Load().TLS.PeerCertificates) == 0 {
			t.Errorf("with the authority %q: %d certificates and %q were sent", file, len(m.got.Load().TLS.PeerCertificates), got)
		}
	}
	other := filepath.Join(t.TempDir(), "other.crt")
	if err := os.WriteFile(other, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	m.got.Store(nil)
	if got := testAsker(t, config, other).ask(t.Context(), address); got.err == nil || m.got.Load() != nil {
		t.Errorf("a certificate of another authority was taken: %v", got.err)
	}
	if _, err := newAsker(config, "no-such-file", time.Second); err == nil {
		t.Error("an authority that is no file was taken")
	}
}

// Nor does a server send it on to another.
func TestARedirectIsNotFollowed(t *testing.T) {
	there := newManager(t)
	there.process = func() member.Process { return member.Process{} }
	here := httptest.NewTLSServer(http.RedirectHandler(there.URL+"/ringz", http.StatusFound))
	defer here.Close()
	got := testAsker(t, &rest.Config{BearerToken: "secret"}, "").ask(t.Context(), here.Listener.Addr().String())
	if got.err == nil || !strings.Contains(got.err.Error(), "302") || there.got.Load() != nil {
		t.Errorf("got %v", got.err)
	}
}

func TestWhoCouldNotBeAskedInTimeIsSaidSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &asker{client: http.DefaultClient}
	for address, answer := range a.askAll(ctx, []string{"[::1]:1", "[::1]:2"}) {
		if answer.err == nil {
			t.Errorf("%s: no error", address)
		}
	}
}
