# make          builds rung, rung-guest, rung-image and runsc into bin/
# make demo     from nothing to the same programs on four rungs (root: installs Debian packages)
# make test     everything that must hold before a commit lands
# make help     lists the rest

SHELL       := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
MAKEFLAGS   += --no-print-directory

GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)

# A static, reproducible program: no C, no paths of the building machine, no debug information.
export CGO_ENABLED := 0
GOBUILD := $(GO) build -trimpath -buildvcs=false

# What else a target may be told.
FUZZTIME ?= 5s
TESTFLAGS ?=
TESTUSER := rung-tester

# The client verbs must at least compile where there is no Linux.
PORTABLE := . ./client/... ./cmd/rung
# Packages without system calls of their own: the race detector needs cgo, and cgo changes what the others link.
RACE := $(wildcard client driver/fake internal/policy internal/audit internal/broker internal/gate internal/registries internal/sys/mux)

.PHONY: build deps testdeps demo test vet race unit testuser real bench bench-gate mem lint fmt fuzz generate clean help FORCE

build: programs bin/runsc ## build all programs into bin/

.PHONY: programs
programs: ## build our own programs only (seconds instead of minutes)
	@mkdir -p bin
	$(GOBUILD) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# gVisor is a module of its own: two to three minutes on two cores, then only when its pin moves. The version it reports
# is the pin, which is what rung records.
bin/runsc: build/runsc/go.mod build/runsc/go.sum build/runsc/main.go
	@mkdir -p bin
	@echo "building gVisor's runsc (a few minutes, once)"
	cd build/runsc && v=$$($(GO) list -m -f '{{.Version}}' gvisor.dev/gvisor) && \
	  $(GOBUILD) -ldflags "-s -w -X gvisor.dev/gvisor/runsc/version.version=$$v" -o ../../bin/runsc .

deps: ## install the Debian packages rung uses (root), or print the command
	@build/deps.sh

demo: deps build ## show the same programs on four rungs, each with its record
	@./demo.sh

testdeps:
	@build/deps.sh test

test: testdeps build testuser vet race unit ## vet, race detector, all tests

vet: ## vet for Linux on both architectures, and the client verbs for macOS
	GOARCH=amd64 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	GOOS=darwin GOARCH=arm64 $(GO) vet $(PORTABLE)

race: ## race detector on the packages that are pure Go logic
	@if command -v gcc >/dev/null; then \
	  CGO_ENABLED=1 $(GO) test -race -json . $(addprefix ./,$(addsuffix /...,$(RACE))) | $(GO) run ./test/report -title race; \
	else echo "race: skipped: the race detector needs a C compiler and none is installed"; fi

unit: ## all tests; each skipped one is listed with its reason
	@RUNG_BIN="$(CURDIR)/bin" RUNG_TEST_USER="$(TESTUSER)" PATH="$(CURDIR)/bin:$$PATH" \
	  $(GO) test -count=1 -timeout 20m -json $(TESTFLAGS) ./... | $(GO) run ./test/report -title test

# Rootless rungs are tested as somebody who is not root. useradd gives ordinary users subordinate ids.
testuser:
	@if [ "$$(id -u)" = 0 ] && ! id $(TESTUSER) >/dev/null 2>&1; then useradd --create-home --shell /bin/bash $(TESTUSER); fi

real: deps build ## 164 HumanEval programs, each its own sandbox, on every rung
	@$(GO) run ./bench/real $(REALFLAGS)

bench: deps build ## start time of each rung against bwrap, crun, runc and runsc bare
	@bench/start.sh

# Not part of bench: it needs root, and the peers' packages.
bench-gate: build ## the gate against slirp4netns, pasta and goproxy (root; some 15 minutes)
	@build/deps.sh bench
	@bench/gate.sh $(GATEFLAGS)

mem: deps build ## memory of rung's own processes per sandbox
	@bench/mem.sh

# The tools have a module of their own, so that what they need never enters rung's.
bin/tools/%: tools.mod tools.sum
	@mkdir -p bin/tools
	@echo "building $* (once)"
	$(GO) build -modfile=tools.mod -o bin/tools/ $$($(GO) list -modfile=tools.mod -f '{{.ImportPath}}' tool | grep '/$*$$')

GOFILES = find . -name '*.go' -not -path './api/gen/*' -not -path './bin/*' -not -path '*/testdata/*'

lint: bin/tools/gofumpt bin/tools/golangci-lint bin/tools/govulncheck ## formatting, linters, module files, known vulnerabilities
	@bad=$$($(GOFILES) | xargs bin/tools/gofumpt -l); [ -z "$$bad" ] || { echo "not gofumpt'ed (make fmt):"; echo "$$bad"; exit 1; }
	$(GO) mod tidy -diff
	cd build/runsc && $(GO) mod tidy -diff
	bin/tools/golangci-lint run ./...
	@build/vulncheck.sh

fmt: bin/tools/gofumpt bin/tools/golangci-lint ## format all Go code and apply the linters' safe fixes
	@$(GOFILES) | xargs bin/tools/gofumpt -w
	bin/tools/golangci-lint run --fix --enable-only modernize ./...

fuzz: ## run every fuzz target for FUZZTIME
	@build/fuzz.sh $(FUZZTIME)

clean: ## remove what make built
	rm -rf bin

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12
