# Targets for developers. `make` alone lists them.
#
# The recipes are short. Longer steps are scripts in .ci/, which can also be run by hand.

SHELL         := bash
.SHELLFLAGS   := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS     += --no-print-directory

GO        ?= go
PYTHON    ?=
FUZZTIME  ?= 20s
DATA      ?= build/demo-data
LISTEN    ?= 127.0.0.1:1337
ADMIN     ?= 127.0.0.1:1338
BENCHARGS ?=
MODELARGS ?=
SOAKARGS  ?=
CLIENTARGS ?=
SEED      ?=
SEEDS     ?= 5000

VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# The linter is compiled from the module proxy at this version. That takes a minute once; the build cache keeps the result.
# It is pinned here and not in go.mod, where its two hundred dependencies would become ours.
GOLANGCI  := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

export GO PYTHON

.PHONY: help
help: ## list the targets
	@echo 'Xebec: make <target>'
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo 'Variables: PYTHON=python3.12  FUZZTIME=20s  SEED=7  LISTEN=127.0.0.1:1337  ADMIN=127.0.0.1:1338  BENCHARGS="-pairs 5"'

.PHONY: run
run: build demo ## build everything, train the demo models and serve them at :1337
	@exec deploy/demo/run.sh --listen $(LISTEN) --admin $(ADMIN) --data-dir $(DATA)

.PHONY: build
build: need-go ## compile bin/xebec and the other programs into bin/
	@.ci/build.sh '$(VERSION)'

.PHONY: demo
demo: venv ## prepare the demo: Python environment, binding, trained models
	@deploy/demo/train.sh

.PHONY: test
test: need-go ## all tests: Go with the race detector, allocations, Python, the model checker
	@.ci/test.sh

.PHONY: check
check: need-go demo ## before a commit: format, vet, linter, import rules, short tests
	@.ci/check.sh '$(GOLANGCI)'

.PHONY: test-models
test-models: need-go ## models of real libraries (xgboost, ONNX Runtime, pandas, …) against the libraries themselves
	@.ci/models.sh $(MODELARGS)

.PHONY: test-clients
test-clients: build ## the client libraries, ours and those of other servers, against a gateway
	@.ci/clients.sh $(CLIENTARGS)

.PHONY: test-pythons
test-pythons: ## the Python binding's tests with Python 3.11 to 3.13 and numpy 1.26 and 2 (PYTHONS="3.12" chooses)
	@.ci/pythons.sh

.PHONY: race
race: need-go need-cc ## Go tests with the race detector only
	@echo '==> go test -race ./...'
	@$(GO) test -race ./...

.PHONY: fuzz
fuzz: need-go ## run every fuzz target for FUZZTIME each
	@.ci/fuzz.sh '$(FUZZTIME)'

.PHONY: bench
bench: build demo ## run all benchmarks; results go to bench/results
	@bench/run.sh $(BENCHARGS)

.PHONY: soak
soak: build ## half an hour of everything at once: no wrong answer, nothing that grows
	@$(GO) build -trimpath -o bin/soak ./bench/cmd/soak
	@bin/soak $(SOAKARGS)

.PHONY: sim
sim: need-go ## simulate the scheduler: SEEDS random worlds, or one SEED with its transcript
	@$(GO) build -o bin/sim ./bench/cmd/sim
	@bin/sim $(if $(SEED),-seed $(SEED) -v,-seeds $(SEEDS))

.PHONY: fmt
fmt: need-go ## format the Go sources
	@echo '==> gofmt -w'
	@gofmt -l -w $$(git ls-files --cached --others --exclude-standard '*.go')

.PHONY: lint
lint: need-go ## golangci-lint, pinned
	@echo '==> golangci-lint (the first run compiles it: about a minute)'
	@$(GO) run $(GOLANGCI) run ./...

.PHONY: clean
clean: ## remove everything that the other targets made
	rm -rf bin build deploy/demo/models/*/digits.joblib deploy/demo/models/digit.json

# Steps that other targets need. The scripts do nothing when their output is up to date.
.PHONY: need-go need-cc venv
need-go:
	@.ci/need.sh go
need-cc:
	@.ci/need.sh cc
venv:
	@.ci/venv.sh
