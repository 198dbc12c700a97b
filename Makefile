# `make help` lists the targets.

# The same flags everywhere, so all clones share one build cache.
export GOFLAGS := -trimpath

FORKTREE := go run ./hack/forktree

.DEFAULT_GOAL := help
.PHONY: help up test faults conformance leader explore explore-driver simulate mutate podreads imports bench bench-memory bench-storm bench-join bench-process bench-namespaces bench-leader bench-objects bench-balance bench-slowness bench-restore bench-presences rollout build tree save check verify rebase vendor clean stock upgrade release terminal example

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## build everything, start a cluster on loopback and show its ring; INSTANCES= NODES= REPLICASETS= PODS= size it
	@hack/local-up-cluster.sh

test: ## run all checks and tests
	@hack/test.sh

explore: tree ## search the ring's state machine for violations; STEPS= FAULTS= TIME=10m bound the search, which is long without
	@hack/test.sh explore

explore-driver: tree ## let members live through random histories of slowness, outages and deaths; HISTORIES=3000 says how many, SEED=17 picks one
	@hack/test.sh explore-driver

simulate: tree ## let 1,000 instances share a million objects for a simulated day, with balance and without, in half an hour; INSTANCES=200 is one minute, SEED= picks another day
	@hack/test.sh simulate

mutate: tree ## break some packages (ring, follower, history) in one place at a time and see their tests notice
	@go run ./hack/mutate

podreads: tree ## print what the leader's controllers read of pods, and check what they declare
	@go run ./hack/podreads -v

imports: tree ## list the imports between our packages and check their order
	@go run ./hack/imports

bench: build ## compare hash key ranges with upstream's selector, into docs/benchmarks/ranges.md
	@go run ./hack/bench

faults: build ## inject faults into real processes and check every write; DURATION=10m goes on, FAULTS="-only kill,pause -times 5" passes flags
	@hack/test.sh faults

conformance: build ## run an operator on a ring of its own under faults, and check what it writes; CONFIG= is its file (docs/guides/conformance.md), CONFORMANCE="-faults 20 -seed 7" passes flags
	@cd _output/kubernetes && go build -o ../tools/ring-conformance ./test/conformance_ring
	@_output/tools/ring-conformance -bin _output/bin -dir _output/conformance -config "$(or $(CONFIG),test/conformance_ring/testdata/replicaset.yaml)" $(CONFORMANCE)

leader: build ## compare what the controllers behind the leader's lease do with stock's; half an hour; LEADER="-cycles 1000" passes flags
	@cd _output/kubernetes && go build -o ../tools/leader ./test/leader
	@_output/tools/leader -bin _output/bin -dir _output/leader -out docs/reference/leader.md $(LEADER)

upgrade: build stock ## upgrade, downgrade and mix controller managers under load, and check every write; takes hours; UPGRADE="-only stock-to-ours -times 2" passes flags
	@go run ./hack/overlay older
	@cd _output/kubernetes && go build -buildvcs=false -overlay ../overlay/older/overlay.json -o ../older/kube-controller-manager ./cmd/kube-controller-manager
	@cd _output/kubernetes && go build -o ../tools/upgrade ./test/upgrade
	@_output/tools/upgrade -bin _output/bin -stock _output/stock/bin -older _output/older -dir _output/upgrade -times 20 $(UPGRADE)

stock: tree ## build upstream's own kube-apiserver and kube-controller-manager into _output/stock/bin
	@hack/stock.sh

bench-memory: build ## measure the memory and traffic of informers, into docs/benchmarks/memory.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/memory --bin-dir="$(CURDIR)/_output/bin" --pods=$(or $(PODS),10000) --out="$(CURDIR)/docs/benchmarks/memory.md"

bench-storm: build ## measure what the restart of an API server under informers costs, into docs/benchmarks/storm.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/storm -bin="$(CURDIR)/_output/bin" -pods=$(or $(PODS),200000) -out="$(CURDIR)/docs/benchmarks/storm.md"

bench-join: build ## measure the memory of a ring's instances and the cost of a join, into docs/benchmarks/join.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/join --bin-dir="$(CURDIR)/_output/bin" --pods=$(or $(PODS),40000) --out="$(CURDIR)/docs/benchmarks/join.md" --plot="$(CURDIR)/docs/benchmarks/join.svg"

bench-process: build ## measure whole controller managers, 1 to 8 and stock's, into docs/benchmarks/process.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/process -bin="$(CURDIR)/_output/bin" -pods=$(or $(PODS),20000) -out="$(CURDIR)/docs/benchmarks/process.md"

bench-namespaces: build ## measure EndpointSlices, and what each process holds of namespaces, into docs/benchmarks/namespaces.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/process -only=namespaces -bin="$(CURDIR)/_output/bin" -pods=$(or $(PODS),20000) -out="$(CURDIR)/docs/benchmarks/namespaces.md"

bench-leader: build ## measure what the process that leads holds of pods, into docs/benchmarks/leader.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/process -only=leader -bin="$(CURDIR)/_output/bin" -pods=$(or $(PODS),60000) -out="$(CURDIR)/docs/benchmarks/leader.md"

bench-objects: build ## measure what the process that leads holds of Nodes, Secrets and the like, into docs/benchmarks/objects.md
	@cd _output/kubernetes && go run ./test/benchmark/process -only=objects -bin="$(CURDIR)/_output/bin" -out="$(CURDIR)/docs/benchmarks/objects.md"

bench-balance: build ## measure how the ring of workloads evens out its load, into docs/benchmarks/balance.md; an hour and a half; OBJECTS= sizes it, BALANCE="-churn=0" passes flags
	@cd _output/kubernetes && go run ./test/benchmark/balance -bin="$(CURDIR)/_output/bin" -dir="$(CURDIR)/_output/balance" -objects=$(or $(OBJECTS),20000) -out="$(CURDIR)/docs/benchmarks/balance.md" -plot="$(CURDIR)/docs/benchmarks/balance.svg" $(BALANCE)

bench-slowness: build ## compare what slowness, outages and deaths cost with stock's leader, into docs/benchmarks/slowness.md; an hour and a half; SLOWNESS="-only=kill" passes flags
	@cd _output/kubernetes && go run ./test/benchmark/slowness -bin="$(CURDIR)/_output/bin" -dir="$(CURDIR)/_output/slowness" -out="$(CURDIR)/docs/benchmarks/slowness.md" $(SLOWNESS)

bench-restore: build ## restore etcd under running controller managers, with and without rings, into docs/benchmarks/restore.md; an hour; RESTORE="-times=1 -only=ours,paused" passes flags
	@cd _output/kubernetes && go run ./test/benchmark/restore -bin="$(CURDIR)/_output/bin" -dir="$(CURDIR)/_output/restore" -out="$(CURDIR)/docs/benchmarks/restore.md" $(RESTORE)

bench-presences: build ## measure what the presences of many instances cost one API server, into docs/benchmarks/presences.md; INSTANCES= says how many
	@cd _output/kubernetes && go run ./test/benchmark/presences -bin="$(CURDIR)/_output/bin" -instances=$(or $(INSTANCES),1000) -out="$(CURDIR)/docs/benchmarks/presences.md"

rollout: build ## restart and kill controller managers while 100 Deployments roll out, and check every pod; ROLLOUT="-times 2" passes flags
	@cd _output/kubernetes && go run ./test/rollout -bin="$(CURDIR)/_output/bin" $(ROLLOUT)

build: ## make the tree and build the binaries into _output/bin; BINARIES="etcd kubectl" for some
	@$(FORKTREE) build $(BINARIES)

example: ## run the operator of examples/virtualmachine on a cluster on loopback and show its ring; REPLICAS= MACHINES= size it
	@hack/example.sh

terminal: build ## draw docs/terminal.svg, of commands that run on a cluster here; a minute
	@go run ./hack/terminal

release: tree ## build and pack images, server tarballs and SBOMs for linux/amd64 and arm64, into _output/release; REGISTRY= names the images, STOCK= is a folder with upstream's server tarballs, for kube-proxy
	@GOTOOLCHAIN=go$$(cat _output/kubernetes/.go-version) go run ./hack/release $(if $(REGISTRY),-registry=$(REGISTRY)) $(if $(STOCK),-stock=$(STOCK))

tree: ## make or update the patched tree in _output/kubernetes
	@$(FORKTREE) make

save: ## bring edits of the tree back into this repository
	@$(FORKTREE) save

check: ## check that every patch applies; takes seconds
	@$(FORKTREE) check

verify: ## check the round trip: make a scratch tree, save it, expect no diff
	@$(FORKTREE) verify

rebase: ## report what another upstream version asks of this repository, into _output/rebase; a quarter of an hour the first time: make rebase VERSION=v1.37.2
	@$(FORKTREE) rebase $(VERSION)

vendor: tree ## copy the tree with its dependencies to _output/vendor, to build offline
	rm -rf _output/vendor
	git -C _output/kubernetes checkout-index --all --prefix="$(CURDIR)/_output/vendor/"
	cd _output/vendor && go work vendor
	@echo "in _output/vendor, go build ./cmd/kube-apiserver needs no network"

clean: ## delete the binaries, but not the tree, which may hold unsaved edits
	rm -rf _output/bin _output/vendor
