# Each target does its own set-up. `make test` needs only Go on a Debian or
# Ubuntu machine; as root it installs the programs that the tests drive.
GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null)
LDFLAGS  := -s -w -X main.release=$(VERSION)
FUZZTIME ?= 10s
export CGO_ENABLED := 0

.PHONY: build test test-claude-code lint bench fuzz generate clean deps man

build:
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/assay-run ./cmd/assay-review

man:
	$(GO) run -tags man -ldflags '$(LDFLAGS)' ./cmd/assay-run man dist/man

# Every test, as root where we are root, and then once more as an ordinary user
# without any writable cgroup.
test: deps
	bash .ci/test

# The hooks of testdata/shims with Claude Code itself, of CLAUDE_CODE_VERSION
# from npm. It is not free software: see its licence first.
CLAUDE_CODE_VERSION ?= 2.1.330
test-claude-code: deps
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
	npm install --prefix "$$dir" --no-audit --no-fund @anthropic-ai/claude-code@$(CLAUDE_CODE_VERSION) && \
	ASSAY_TEST_CLAUDE_CODE="$$dir/node_modules/.bin/claude" $(GO) test -count 1 -v -timeout 5m -run '^TestClaudeCode$$' ./cmd/assay-run

lint: deps
	test -z "$$(gofmt -l $$(git ls-files '*.go'))"
	$(GO) vet ./... ./.ci/benchmark ./.ci/summary
	$(GO) tool staticcheck ./...

# Paired with the bare command in the same run; medians and ratios.
bench: deps
	bash .ci/bench

fuzz:
	FUZZTIME=$(FUZZTIME) bash .ci/fuzz

# Compiles the BPF programs with the pinned compiler. The result is committed.
generate: deps
	$(GO) generate ./bpf

clean:
	rm -rf bin dist

deps:
	bash .ci/deps
