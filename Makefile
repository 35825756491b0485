# make test-fast  what needs neither root nor more than git and a compiler, as go test ./...
# make test       everything for this host: ten minutes
# make nightly    everything: other kernels, whole packages as a user, fuzzing, benchmarks, fresh machines: hours
# make hunt PKG=./runner [RUN=TestName]  runs a package's tests on a busy machine until one fails
# make deps       installs the programs that the tests drive (Debian or Ubuntu, root)
#
# Only make deps installs anything, and the other targets where CI is set.
GO       ?= go
# The version of cmd/internal/console, with the revision where that has no tag.
NUMBER   := $(shell sed -n 's/^const number = "\(.*\)"/\1/p' cmd/internal/console/version.go)
REVISION := $(shell git describe --always --dirty=.dirty --exclude '*' 2>/dev/null)
VERSION  ?= $(NUMBER)$(if $(filter v$(NUMBER),$(shell git describe --tags --exact-match --dirty 2>/dev/null)),,$(addprefix +,$(REVISION)))
LDFLAGS  := -s -w -X main.release=$(VERSION)
# On Linux, assay-run begins with cgroup/steps.
ENTRY    := $(if $(filter linux,$(shell $(GO) env GOOS)),-E=github.com/assay-run/assay-run/cgroup/steps.entry)
FUZZTIME ?= 10s
# The wildcard ./... leaves out folders whose name begins with a dot.
CI_PACKAGES := $(patsubst %,./%,$(sort $(dir $(wildcard .ci/*/*.go))))
export CGO_ENABLED := 0

.PHONY: build test truth cheats test-fast nightly hunt test-claude-code test-agents lint bench fuzz generate clean deps man release

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS) $(ENTRY)' -o bin/ ./cmd/assay-run
	@echo 'bin/assay-run is ready; assay-review and assay-suite follow'
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/assay-review ./cmd/assay-suite

man:
	$(GO) run -tags man -ldflags '$(LDFLAGS)' ./cmd/assay-run man dist/man
	$(GO) run -tags man -ldflags '$(LDFLAGS)' ./cmd/assay-suite man dist/man

# Archives, packages, images, a bill of materials and checksums in dist; the same
# commit gives the same bytes.
release:
	$(GO) run ./.ci/release -version '$(VERSION)' -out dist

# Everything for this host, as root where we are root, and at the same time as an ordinary user
# without any writable cgroup.
test: tools
	bash .ci/test

test-fast:
	bash .ci/test fast

# What takes a night, and for each failure whether the parent commit fails. NIGHTLY="fuzz release" runs these parts.
nightly: tools
	bash .ci/nightly

hunt: tools
	bash .ci/hunt $(PKG) $(RUN)

# What a run's kernel layer says of real programs, held against strace on the same
# execution: a table of recall, precision and what differs between equal runs.
truth: tools
	TRUTH=all $(GO) test -count 1 -v -timeout 30m -run '^(TestGroundTruth|TestNotifyAgainstStrace)$$' ./kernel/truthtest

# What the evaluation's rules say of the agents of testdata/evaluation/corpus, written there and to docs/evaluation.md.
cheats: tools
	CHEATS=write ASSAY_TEST_LAYER=host $(GO) test -ldflags='./cmd/assay-run=$(ENTRY)' -count 1 -v -run '^TestCheats$$' ./cmd/assay-run

# The hooks of testdata/shims with Claude Code itself, of CLAUDE_CODE_VERSION
# from npm. It is not free software: see its licence first.
CLAUDE_CODE_VERSION ?= 2.1.330
test-claude-code: tools
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	npm install --prefix "$$dir" --no-audit --no-fund @anthropic-ai/claude-code@$(CLAUDE_CODE_VERSION) && \
	ASSAY_TEST_CLAUDE_CODE="$$dir/node_modules/.bin/claude" $(GO) test -count 1 -v -timeout 5m -run '^TestClaudeCode$$' ./cmd/assay-run

# Codex, Gemini CLI, OpenCode, Qwen Code and pi themselves, Claude Code (see above), and the SDKs of their providers, from npm, with
# scripted models.
AGENTS ?= @openai/codex@0.169.0 @google/gemini-cli@0.61.0 opencode-ai@1.18.33 \
	@qwen-code/qwen-code@0.24.4 @mariozechner/pi-coding-agent@0.73.1 \
	@anthropic-ai/claude-code@$(CLAUDE_CODE_VERSION) \
	@anthropic-ai/sdk@1.14.0 openai@6.49.0 @google/genai@2.32.0
test-agents: tools
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	npm install --prefix "$$dir" --no-audit --no-fund $(AGENTS) && \
	ASSAY_TEST_AGENTS="$$dir/node_modules/.bin" $(GO) test -count 1 -v -timeout 10m -run '^Test(Agents|ModelSDKs)' ./cmd/assay-run

lint:
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	$(GO) run ./.ci/columns $$(git ls-files "*.go" "*.c" "*.h" | grep -vE "_bpfel\.go$$|vmlinux|vendor")
	$(GO) vet ./... $(CI_PACKAGES)
	$(GO) tool staticcheck ./... $(CI_PACKAGES)

# Paired with the bare command in the same run; medians and ratios.
bench: tools
	bash .ci/bench

fuzz:
	FUZZTIME=$(FUZZTIME) bash .ci/fuzz

# Compiles the BPF programs with the pinned compiler. The result is committed.
generate: tools
	$(GO) generate ./bpf ./runner/sandbox/internal/sockaddr

clean:
	rm -rf bin dist .ci/artifacts

deps:
	bash .ci/deps install

# Names what is missing, or installs it in CI.
.PHONY: tools
tools:
	bash .ci/deps
