# `make` lists the targets. Everything works from a fresh clone with Go and, for the tests, a Postgres that cmd/testpg can find or start.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# Build settings of a release: without C, which only the race detector needs, and without the path of the checkout, so that checkouts share compiled packages.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

# Packages and tests of a run: make test PKG=./internal/cron RUN=Preview
PKG     ?= ./...
RUN     ?= .
TIMEOUT ?= 30m
# The race detector does not instrument the engine of SQLite, which is C translated to Go and synchronizes its memory itself.
RACE    := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false
# Directories whose tests have long histories.
CHAOS   := ./internal/teste2e ./internal/dispatch ./internal/scheduler ./internal/channel/telegram ./internal/cron/schedule
PREFIX  ?= /usr/local
LINT    := $(GO) tool -modfile=tools/go.mod golangci-lint
TESTPG  := $(GO) run ./cmd/testpg -no-fsync --
export GO RACE PKG RUN TIMEOUT

.PHONY: help build run test short stress processes lint fmt generate schema check arch tidy generated fuzz bench recording walk peers bench-once chaos \
  compat ui-test ui-shots oracle vuln zones zones-newest sbom reproducible packages packages-test dist image setup man install clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "} {printf "  %-12s %s\n", $$1, $$2}'

build: ## bin/laneway: static, with version and commit, the same bytes for the same source
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/laneway ./cmd/laneway

run: build ## build, and serve with the default settings
	./bin/laneway serve

test: ## every test that gates a change, on both stores, with the race detector where scripts/test says so (PKG=, RUN=, TIMEOUT=)
	scripts/setup missing
	$(TESTPG) scripts/test

short: ## every test without processes, PostgreSQL and long histories, for between two edits (PKG=, RUN=)
	$(GO) test -short -timeout $(TIMEOUT) -run '$(RUN)' $(PKG)

stress: ## N runs (20) of make short, or of PKG in full with FULL=1, next to two busy processes
	scripts/stress

processes: ## count the processes that the tests start, and the tests that start some; fails above the bounds (needs perf and root)
	$(TESTPG) scripts/processes

lint: ## golangci-lint at the pinned version; formatting as a difference; Compose files by the library of docker compose; the types of the dashboard (npm)
	$(LINT) run --allow-parallel-runners $(PKG)
	$(LINT) fmt --diff
	cd tools/compose && $(GO) run . ../../compose.yaml ../../internal/testpg/compose.yaml
	scripts/check-types
	scripts/zones check

fmt: ## format in place
	$(LINT) fmt

generate: ## regenerate the generated files
	$(GO) generate ./...

schema: ## migrations/*.schema.txt, after a new migration
	$(TESTPG) $(GO) test -count=1 ./internal/store/sqlite ./internal/store/postgres -update

check: lint test arch tidy generated ## what a change must pass

arch: ## directions of imports, and no test code in the program
	$(GO) test -count=1 ./internal/archtest

tidy: ## fails when go.mod or go.sum are not tidy
	$(GO) mod tidy -diff
	$(GO) mod verify

generated: ## fails when a generated file differs from what its generator makes
	scripts/check-generated

fuzz: ## every fuzz target for FUZZTIME each (default 1m)
	scripts/fuzz

bench: ## the table of figures: medians, worst, goals (COUNT=5, ROWS=regexp)
	LANEWAY_BENCH_LARGE=1 $(GO) run ./cmd/testpg -- $(GO) run ./cmd/testbench -count $${COUNT:-5} -run "$${ROWS:-.}"

walk: ## docs/architecture-walks.md: the functions that one message and one slot call, recorded
	$(GO) run ./cmd/testwalk >docs/architecture-walks.md.new
	mv docs/architecture-walks.md.new docs/architecture-walks.md

recording: build ## docs/recording.svg: the terminal of the README, from a run
	$(GO) run ./cmd/testrecording bin/laneway >docs/recording.svg.new
	mv docs/recording.svg.new docs/recording.svg

peers: ## laneway compared with PicoClaw (PICOCLAW=directory with its sources), River and the bare engine (ROUNDS=5, JOBS=5000, ONLY=gateways)
	scripts/peers

bench-once: ## every benchmark once, to see that they work
	$(TESTPG) $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./...

chaos: ## long histories: hundreds of kills, a million turns, thousands of random histories (PKG=, RUN=)
	LANEWAY_TEST_LONG=1 CGO_ENABLED=1 $(TESTPG) $(GO) test $(RACE) -count=1 -timeout 240m -v -run '$(RUN)' $(if $(filter ./...,$(PKG)),$(CHAOS),$(PKG))

compat: ## foreign programs, unmodified, against the binary: OpenClaw, its schema, ws, Python, Chromium, nginx, Caddy (needs npm, tmux, chromium)
	$(TESTPG) $(GO) test -tags compat -count=1 -timeout 60m -run '$(RUN)' -v ./internal/testcompat

ui-test: build ui-test/node_modules ## the dashboard of the binary in Chromium, on both engines (PROXY=nginx or caddy, REPLICAS=3, UPDATE=1 for the table of docs/figures-scale.md; needs npm, chromium, psql)
	rm -f bin/actions
	ACTIONS='$(CURDIR)/bin/actions' $(TESTPG) node --test ui-test/
	$(if $(UPDATE),node ui-test/actions.mjs bin/actions)

ui-shots: build ui-test/node_modules ## a picture of each page at three widths, light and dark, empty, full and broken, in SHOTS (needs npm, chromium)
	node ui-test/shots.mjs '$(or $(SHOTS),dist/shots)'
	node ui-test/shots.mjs docs/pictures docs

ui-test/node_modules: ui-test/package-lock.json
	npm ci --silent --ignore-scripts --prefix ui-test
	touch $@

oracle: ## the schedules of cron against a second search, minute by minute, and against croner of npm (needs npm)
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; npm install --silent --no-save --prefix "$$dir" croner; \
	LANEWAY_TEST_LONG=1 CRON_NPM_DIR="$$dir" $(GO) test -tags compat -count=1 -timeout 30m -v ./internal/cron/schedule

vuln: ## known vulnerabilities in what the program calls; reports when the database cannot be reached
	scripts/vuln

sbom: build ## bin/laneway.cdx.json: the modules that are linked into bin/laneway, as CycloneDX
	$(GO) run ./cmd/sbom -version '$(VERSION)' bin/laneway >bin/laneway.cdx.json

reproducible: ## build twice, the second time in another directory without a cache, and compare the bytes
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' scripts/reproducible

packages: ## dist: archives for linux, darwin and windows, deb and rpm, lists of modules, checksums (TARGETS="linux/amd64 …")
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' scripts/packages

packages-test: ## install each package for this machine into an empty root, and start it and both images there (as root; needs mmdebstrap, rpm, buildah, npm)
	$(MAKE) packages TARGETS=linux/$$($(GO) env GOARCH)
	$(MAKE) image
	AGENTS= BASE=debian $(MAKE) image IMAGE=agents
	LANEWAY_PACKAGES="$$PWD/dist" $(TESTPG) $(GO) test -tags packages -count=1 -v ./internal/testpackages

dist: vuln zones-newest reproducible packages ## the files of a release, after its checks

zones: ## the time zone rules of the program, from Debian's newest tzdata
	scripts/zones

zones-newest: ## fails when Debian has newer time zone rules than the program
	scripts/zones newest

image: ## the container image laneway:$(VERSION), by buildah (an archive in dist) or docker; IMAGE=agents: laneway:agents with Node.js and git (BASE=debian, AGENTS=)
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' LDFLAGS='$(LDFLAGS)' scripts/image

setup: ## install what the tests need, with apt
	scripts/setup

man: build ## bin/man1: the manual pages of every command
	./bin/laneway __man bin/man1

install: man ## the program, manual pages and completion below PREFIX (/usr/local), and the systemd unit, for DESTDIR or this machine
	install -D -m 0755 bin/laneway '$(DESTDIR)$(PREFIX)/bin/laneway'
	install -d '$(DESTDIR)$(PREFIX)/share/man/man1'
	install -m 0644 bin/man1/*.1 '$(DESTDIR)$(PREFIX)/share/man/man1/'
	install -d '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' '$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	./bin/laneway completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/laneway'
	./bin/laneway completion zsh >'$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_laneway'
	./bin/laneway completion fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/laneway.fish'
	install -d '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	sed 's|/usr/local/bin/|$(PREFIX)/bin/|' deploy/laneway.service >'$(DESTDIR)$(PREFIX)/lib/systemd/system/laneway.service'

clean: ## remove what was built
	rm -rf bin dist
