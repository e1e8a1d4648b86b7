# `make` lists the targets. Everything works from a fresh clone with Go and, for the tests, a Postgres that cmd/testpg can find or start.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.0.0-dev)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION) -X main.commit=$(COMMIT)

# As a release is built: without C, which the race detector alone needs, and without the path of the checkout, so that another checkout finds everything
# compiled.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

# Packages and flags of a test run: make test PKG=./internal/cron RUN=Preview
PKG     ?= ./...
RUN     ?= .
TIMEOUT ?= 30m
# Some tests run without the race detector, which slows them down up to ten times: the conformance suites of the stores on SQLite, whose engine is
# C translated to Go, and on Postgres (their races run with it); SLOW, a million turns whose memory is counted,
# which would be the detector's, and the random histories, which are long, and in which the runtime of the detector broke once; and LONG, which `make chaos`
# runs with it: long virtual times on both stores, of outages and of nights, copies of stores, scripts of the command line, texts that one goroutine renders, thousands
# of answers that are compared byte by byte, files and answers of 10 MB and more, schedules beside a second search, programs that are killed while they
# write to SQLite, its migrations, and single operations on it one after the other.
SLOW     := TestIdleSessionsLeaveNothing|TestRandomHistoriesKeepEveryPromise|TestRandomHistoriesOfAJobAreThoseOfThePlainModel
LONG     := TestAKillInAnyStepOfACompactionLeavesOneSummary|TestAResetOrDeletionBesideACompactionLeavesNoSummary|TestTwoReplicasCompactAConversationOnce|TestRunsOfAPersonOverTheDaysNumberAreSkippedWithOneAlert|TestAnOutageUsesUpNoAttempts|TestEveryTableIsCopiedThereAndBack|TestAnInterruptedCopyGoesOn|TestScripts|TestManyTexts|TestWordsSurvive|TestDeepTextIsRead|TestRenderingCostsNoMoreThanTheText|TestAnswersAboutJobsKeepTheirBytes|TestBadAnswers|TestAnswersThatComeTooFastArePaced|TestRunNowReportsWhyItDidNotRunAndLeavesThePlanAlone|TestTheStatementIsTheFence|TestTheComparisonSeesAStaleCache|TestAFireCountsWhatHappensInBetween|TestDaysAndWeeksAreRolledUpByBuiltInJobs|TestJobsThatWereDownForHoursComeBackBoundedAndSpread|TestTheStoreIsCompactedEverySunday|TestOldMessagesAreRemovedByABuiltInJobEveryNight|TestOldSessionsOfTasksAreRemovedByABuiltInJobEveryNight|TestOldSessionsOfCompactionsAreRemovedByABuiltInJobEveryNight|TestWithoutARetentionNothingIsRemoved|TestOldFilesAreRemovedWithOldMessages|TestEveryZoneAgreesWithTheWalkingOracle|TestUploadsAreRefusedBeforeTheyFillTheDisk|TestLargeUploads|TestTheLargestAttachmentIsTakenToTheByte|TestALargeFileHasMoreTime|TestFarYearsAgreeWithTheWalkingOracle|TestPeculiarZonesAgreeWithTheWalkingOracle|TestSearchAgreesWithGronxInUTC|TestMigrationsGoUpAndDownAndKeepWhatIsNotTheirs|TestAKillWhileIndexingLeavesAWholeIndex|TestACrashAtACommitBoundaryLosesNothingAcknowledged|TestACopyRefusesWhatItWouldDestroy|TestASourceThatChangedBetweenTwoAttemptsIsNoticed|TestTextsThatPostgresCannotStoreAreCounted|TestAfterAnOutageEverythingThatWaitsGoesOut|TestFiveMinutesWithoutTelegramAtTheStartDelayNothingElse
# Where they are, beside the conformance suites.
LONGIN   := ./internal/store/sqlite ./internal/dispatch ./internal/channel/telegram ./internal/gateway ./internal/store/transfer ./internal/testtelegram ./cmd/laneway ./internal/cron/schedule
SLOWRACE := ^(TestStore|TestConformance|$(SLOW)|$(LONG))$$
# The detector looks at the areas Race and CronRace of these two suites alone, and the other stage at all others. Their names are the only ones that
# end so.
SKIPPLAIN := ^(TestStore|TestConformance)$$/^(Race|CronRace)$$
SKIPRACE := ^(TestStore|TestConformance)$$/([^e]|[^c]e|[^a]ce)$$|^($(SLOW)|$(LONG))$$
# The detector does not look into that engine elsewhere either: it guards its memory itself.
RACE    := -race -gcflags=modernc.org/sqlite/lib=-race=false -gcflags=modernc.org/libc=-race=false
RACED   := env CGO_ENABLED=1 $(GO) test $(RACE)
# How many parallel tests of a package run at once, and of internal/teste2e, whose real processes wait for most of their time.
TOGETHER ?= 4
WAITING  ?= 8
# Where the linked test binaries of this checkout stay: beside Go's cache, see scripts/test.
BINARIES = $(shell dirname "$$($(GO) env GOCACHE)")/laneway-tests-$(shell pwd -P | cksum | cut -d" " -f1)
PREFIX  ?= /usr/local
LINT    := $(GO) tool -modfile=tools/go.mod golangci-lint
TESTPG  := $(GO) run ./cmd/testpg -no-fsync --

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk 'BEGIN {FS = ":.*## "} {printf "  %-12s %s\n", $$1, $$2}'

.PHONY: build
build: ## bin/laneway: static, with version and commit, the same bytes for the same source
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/laneway ./cmd/laneway

.PHONY: run
run: build ## build, and serve with the default settings
	./bin/laneway serve

.PHONY: test
test: ## every test with the race detector, Postgres included (PKG=, RUN=, TIMEOUT=)
ifeq ($(PKG) $(RUN),./... .)
	$(TESTPG) env GO='$(GO)' TOGETHER='$(TOGETHER)' WAITING='$(WAITING)' TIMEOUT='$(TIMEOUT)' RACE='$(RACE)' SLOWRACE='$(SLOWRACE)' SKIPRACE='$(SKIPRACE)' SKIPPLAIN='$(SKIPPLAIN)' LONGIN='$(LONGIN)' LANEWAY_TEST_BINARIES='$(BINARIES)' scripts/test
else
	$(TESTPG) $(RACED) -parallel $(TOGETHER) -timeout $(TIMEOUT) -run '$(RUN)' $(PKG)
endif

.PHONY: short
short: ## every test without the race detector, for between two edits
	$(TESTPG) $(GO) test -parallel $(TOGETHER) -timeout $(TIMEOUT) -run '$(RUN)' $(PKG)

.PHONY: lint
lint: ## golangci-lint at the pinned version; formatting as a difference; repetitions in documents; Compose files by the library of docker compose
	$(LINT) run --allow-parallel-runners $(PKG)
	$(LINT) fmt --diff
	cd tools/compose && $(GO) run . ../../compose.yaml ../../internal/testpg/compose.yaml
	$(GO) test -count=1 -run NoDocumentSaysAThingTwice ./internal/archtest

.PHONY: fmt
fmt: ## format in place
	$(LINT) fmt

.PHONY: generate
generate: ## make generated files again
	$(GO) generate ./...

.PHONY: schema
schema: ## migrations/*.schema.txt, after a new migration
	$(GO) run ./cmd/testpg -- $(GO) test -count=1 ./internal/store/sqlite ./internal/store/postgres -run '^TestTheSchemaIsTheReviewedOne$$' -update

.PHONY: check
check: lint test arch tidy generated ## what decides whether a change lands

.PHONY: arch
arch: ## directions of import, and nothing of tests in the program
	$(GO) test -count=1 ./internal/archtest

.PHONY: tidy
tidy: ## fails when go.mod or go.sum are not tidy
	$(GO) mod tidy -diff
	$(GO) mod verify

.PHONY: generated
generated: ## fails when a generated file differs from what its generator makes
	scripts/check-generated

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (default 1m)
	scripts/fuzz

.PHONY: bench
bench: ## the table of figures: medians, worst, goals (COUNT=5, ROWS=regexp)
	LANEWAY_BENCH_LARGE=1 $(GO) run ./cmd/testpg -- $(GO) run ./cmd/testbench -count $${COUNT:-5} -run "$${ROWS:-.}"

.PHONY: recording
recording: build ## docs/recording.svg: the terminal of the README, from a run
	$(GO) run ./cmd/testrecording bin/laneway >docs/recording.svg.new
	mv docs/recording.svg.new docs/recording.svg

.PHONY: peers
peers: ## laneway beside PicoClaw (PICOCLAW=directory with its sources), River and the bare engine (ROUNDS=5, JOBS=5000, ONLY=gateways)
	scripts/peers

.PHONY: bench-once
bench-once: ## every benchmark once, to see that they work
	$(TESTPG) $(GO) test -run '^$$' -bench . -benchtime 1x -timeout 30m ./...

.PHONY: chaos
chaos: ## the scenarios against real processes at full length (KILLS=200, RESTARTS=20 with MESSAGES=500 of Telegram, LOAD_SECONDS=600); the invariants at the end
	LANEWAY_TEST_CONNS=20 LANEWAY_TEST_KILLS=$${KILLS:-200} LANEWAY_TEST_CRON_KILLS=$${KILLS:-200} LANEWAY_TEST_CRON_STARTS=$${KILLS:-200} LANEWAY_TEST_RAPID_JOBS=10000 \
	LANEWAY_TEST_REPLICA_KILLS=50 LANEWAY_TEST_REPLICA_JOBS=100 LANEWAY_TEST_LOAD_SECONDS=$${LOAD_SECONDS:-600} \
	LANEWAY_TEST_SOCKETS=10000 LANEWAY_TEST_UNAUTHENTICATED=5000 LANEWAY_TEST_ABUSES=50 LANEWAY_TEST_FRAGMENTS=1000000 LANEWAY_TEST_DROPS=1000 \
	LANEWAY_TEST_PROBES=200 LANEWAY_TEST_READS=10000 LANEWAY_TEST_HOSTILE=1 LANEWAY_TEST_HANDOVERS=50 LANEWAY_TEST_RESTARTS=50 LANEWAY_TEST_STOPS=1000 \
	LANEWAY_TEST_TELEGRAM_RESTARTS=$${RESTARTS:-20} LANEWAY_TEST_TELEGRAM_MESSAGES=$${MESSAGES:-500} \
	LANEWAY_TEST_DATABASE_CRASHES=200 LANEWAY_TEST_TURNS=2000 LANEWAY_TEST_COPY_MESSAGES=100000 LANEWAY_TEST_COPY_JOBS=10000 $(GO) run ./cmd/testpg -- $(RACED) -count=1 -timeout 80m -v ./internal/teste2e
	$(GO) test -count=1 -timeout 60m ./internal/channel/telegram -run 'TestManyTexts$$' -texts 1000000
	LANEWAY_TEST_TURNS=2000 $(TESTPG) $(RACED) -count=1 -timeout 60m -run '^(TestManyTurnsInAWindowOfEightThousandTokens|$(LONG))$$' $(LONGIN)
	$(MAKE) trees
	$(MAKE) abuse

.PHONY: trees
trees: ## 200 roots with 8 sub-turns each while all lanes are full, beside the same turns without trees, on both stores (3 minutes): at least 90 % of their throughput
	LANEWAY_TEST_TREES=200 $(GO) run ./cmd/testpg -- $(GO) test -count=1 -timeout 30m -v ./internal/teste2e -run '^TestTreesKeepTheThroughputOfTheirTurns$$'

.PHONY: abuse
abuse: ## what a small credential can do to others: each method for ABUSE_SECONDS (5), all of them for a minute, on both stores (15 minutes); tables, and bounds that fail
	LANEWAY_TEST_ABUSE_MS=$${ABUSE_SECONDS:-5}000 LANEWAY_TEST_ABUSE_MIXED_MS=60000 LANEWAY_TEST_ABUSE_SLACK=1 LANEWAY_TEST_ABUSE_CONNS=32 LANEWAY_TEST_ABUSE_TURNS=200 \
	LANEWAY_TEST_ABUSE_SESSIONS=2000 LANEWAY_TEST_ABUSE_JOBS=1000 $(GO) run ./cmd/testpg -- \
	$(GO) test -count=1 -timeout 90m -parallel 1 -v ./internal/teste2e -run '^TestASmallCredentialDegradesTheServiceForNoOther$$'

.PHONY: simulate
simulate: ## random histories of scheduler and dispatch, SEEDS of them (default 10000), and of a job (HISTORIES, 500, of 100 steps), from the seed FIRST_SEED (1)
	LANEWAY_TEST_SEEDS=$${SEEDS:-10000} LANEWAY_TEST_MODEL=$${HISTORIES:-500} LANEWAY_TEST_FIRST_SEED=$${FIRST_SEED:-1} $(TESTPG) $(GO) test -count=1 -timeout 240m -v -run 'TestRandom' ./internal/scheduler ./internal/dispatch

.PHONY: compat
compat: ## foreign programs, unmodified, against the binary: OpenClaw, its schema, ws, Python, Chromium, nginx, Caddy (needs npm, tmux, chromium)
	$(TESTPG) $(GO) test -tags compat -count=1 -timeout 60m -run '$(RUN)' -v ./internal/testcompat

.PHONY: ui-test
ui-test: build ui-test/node_modules ## the dashboard of the binary in Chromium, on both engines (needs npm, chromium, psql)
	$(TESTPG) node --test ui-test/

.PHONY: ui-shots
ui-shots: build ui-test/node_modules ## a picture of each page at three widths, light and dark, empty, full and broken, in SHOTS (needs npm, chromium)
	node ui-test/shots.mjs '$(or $(SHOTS),dist/shots)'
	mkdir -p docs/pictures; cd '$(or $(SHOTS),dist/shots)'; to='$(CURDIR)/docs/pictures'; \
	cp overview-full-1440-light.png "$$to/dashboard-overview.png"; cp overview-stale-1440-dark.png "$$to/dashboard-stale.png"; \
	cp jobs-full-1440-light.png "$$to/dashboard-jobs.png"; cp jobs-full-390-dark.png "$$to/dashboard-phone.png"; \
	cp why-full-1440-light.png "$$to/dashboard-why.png"

ui-test/node_modules: ui-test/package-lock.json
	npm ci --silent --ignore-scripts --prefix ui-test
	touch $@

.PHONY: oracle
oracle: ## the schedules of cron against a second search, minute by minute, and against croner of npm (needs npm)
	CRON_ORACLE=full $(GO) test -count=1 -timeout 30m -v -run Oracle ./internal/cron/schedule
	dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; npm install --silent --no-save --prefix "$$dir" croner; \
	CRON_NPM_DIR="$$dir" $(GO) test -tags compat -count=1 -v -run Croner ./internal/cron/schedule

.PHONY: vuln
vuln: ## known vulnerabilities in what the program calls; says so where the database cannot be reached
	scripts/vuln

.PHONY: sbom
sbom: build ## bin/laneway.cdx.json: the modules that are linked into bin/laneway, as CycloneDX
	$(GO) run ./cmd/sbom -version '$(VERSION)' bin/laneway >bin/laneway.cdx.json

.PHONY: reproducible
reproducible: ## build twice, the second time elsewhere and from nothing, and compare the bytes
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' scripts/reproducible

.PHONY: packages
packages: ## dist: archives for linux, darwin and windows, deb and rpm, lists of modules, checksums (TARGETS="linux/amd64 …")
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' scripts/packages

.PHONY: packages-test
packages-test: ## install each package for this machine into an empty root, and start it and the image there (as root; needs dpkg, rpm and buildah)
	$(MAKE) packages TARGETS=linux/$$($(GO) env GOARCH)
	$(MAKE) image
	LANEWAY_PACKAGES="$$PWD/dist" $(TESTPG) $(GO) test -tags packages -count=1 -v ./internal/testpackages

.PHONY: dist
dist: vuln reproducible packages ## what a release has, with its two checks before

.PHONY: image
image: ## the container image laneway:$(VERSION), by buildah (an archive in dist) or docker
	VERSION='$(VERSION)' COMMIT='$(COMMIT)' LDFLAGS='$(LDFLAGS)' scripts/image

.PHONY: setup
setup: ## install what the tests need, where apt is at hand
	scripts/setup

.PHONY: man
man: build ## bin/man1: the manual pages of every command
	./bin/laneway __man bin/man1

.PHONY: install
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

.PHONY: clean
clean: ## remove what was built
	rm -rf bin dist '$(BINARIES)'
