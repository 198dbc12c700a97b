# `make help` lists what there is to do.

# The same flags everywhere, so that clones share one build cache.
export GOFLAGS := -trimpath

FORKTREE := go run ./hack/forktree

.DEFAULT_GOAL := help
.PHONY: help up test faults bench bench-memory bench-join build tree save check verify rebase vendor clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## make and build everything, start a cluster on loopback, show the ring; INSTANCES= NODES= REPLICASETS= PODS= size it
	@hack/local-up-cluster.sh

test: ## run all checks and tests
	@hack/test.sh

bench: build ## measure ranges of hash keys against upstream's selector into docs/benchmarks.md
	@go run ./hack/bench

faults: build ## let faults befall real processes and check what they did; DURATION=10m for long, FAULTS="-only kill,pause -times 5" for flags
	@hack/test.sh faults

bench-memory: build ## measure what informers hold and fetch into docs/benchmarks-memory.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/memory --bin-dir=$(CURDIR)/_output/bin --pods=$(or $(PODS),10000) --out=$(CURDIR)/docs/benchmarks-memory.md

bench-join: build ## measure what a ring's instances hold, and what a join costs, into docs/benchmarks-join.md; PODS= sizes it
	@cd _output/kubernetes && go run ./test/benchmark/join --bin-dir=$(CURDIR)/_output/bin --pods=$(or $(PODS),40000) --out=$(CURDIR)/docs/benchmarks-join.md --plot=$(CURDIR)/docs/join.svg

build: tree ## build the binaries into _output/bin; BINARIES="etcd kubectl" for some
	@$(FORKTREE) build $(BINARIES)

tree: ## make or update the patched tree in _output/kubernetes
	@$(FORKTREE) make

save: ## bring edits of the tree back into this repository
	@$(FORKTREE) save

check: ## see whether every patch applies: seconds
	@$(FORKTREE) check

verify: ## see whether making the tree and saving it changes nothing
	@$(FORKTREE) verify

rebase: ## try all patches on another upstream version: make rebase VERSION=v1.37.2
	@$(FORKTREE) rebase $(VERSION)

vendor: tree ## copy the tree with all its dependencies to _output/vendor, to build without a network
	rm -rf _output/vendor
	git -C _output/kubernetes checkout-index --all --prefix=$(CURDIR)/_output/vendor/
	cd _output/vendor && go work vendor
	@echo "in _output/vendor, go build ./cmd/kube-apiserver needs no network"

clean: ## delete the binaries; the tree stays, as it may hold unsaved edits
	rm -rf _output/bin _output/vendor
