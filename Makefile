# `make help` lists what can be made. Everything that needs the virtual environment makes it first.

PYTHON ?=
BIN := .venv/bin
# Newer than what it depends on when .venv is complete and up to date.
STAMP := .venv/.up-to-date
# The same for the Rust part, which is built again when its sources change.
NATIVE := .venv/.native-up-to-date
NATIVE_TESTS := .venv/.native-tests-up-to-date
RUST_SOURCES := $(shell find native -name target -prune -o -type f \( -name '*.rs' -o -name 'Cargo.*' \) -print)
IN_WORKSPACE := --manifest-path native/Cargo.toml --workspace --locked --offline
# With the locks and atomics of loom, which tries them in every order. Apart, so that nothing else is compiled anew.
LOOM := RUSTFLAGS='--cfg loom' cargo
IN_CORE := --manifest-path native/Cargo.toml --package headrace-core --target-dir native/target/loom --locked --offline
# The tests start hundreds of Python processes, each of which would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup fetch demo wheel test-fast test-native test test-full soak lint lock proto bench certify clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) $(NATIVE) ## make .venv with everything in it (PYTHON=... chooses the interpreter)

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	@PYTHON='$(PYTHON)' tools/setup.sh
	@touch $@ $(NATIVE)

$(NATIVE): $(RUST_SOURCES) | $(STAMP)
	@tools/setup.sh native
	@touch $@

$(NATIVE_TESTS): $(RUST_SOURCES) | setup
	@echo "Building the tests of the Rust part (two minutes the first time)"
	@cargo test --no-run --quiet --release $(IN_WORKSPACE)
	@$(LOOM) test --no-run --quiet $(IN_CORE) --lib
	@touch $@

wheel: setup ## build a wheel into dist/, which works without this folder
	@PATH="$$PWD/$(BIN):$$PATH" CARGO_NET_OFFLINE=true $(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps \
		--no-build-isolation --wheel-dir dist .

demo: setup ## the whole product: made-up orders into a view, with kill -9, compared with DuckDB
	@HEADRACE_JARS_CACHE="$${HEADRACE_JARS_CACHE:-$(CURDIR)/.jars}" $(BIN)/headrace demo

# One process has the Spark session, with all tests on it, and two have the rest, which often wait for servers.
PYTEST := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Properties are tried with a quarter of the examples.
SHORT := --hypothesis-profile=short

fetch: setup $(NATIVE_TESTS) ## what the tests need, once: servers and jars, about 320 MB, and the tests in Rust
	@$(BIN)/python -m devtools.fetch

test-fast: setup ## the inner loop, about a minute: no servers, no Spark, no processes
	$(PYTEST) $(SHORT) -m 'not processes and not full and not soak'

test-native: setup ## the tests of the Rust part alone
	cargo test --quiet --release $(IN_WORKSPACE)
	$(LOOM) test --quiet $(IN_CORE) --lib loom_

test: fetch lint test-native ## what CI runs, about ten minutes: style, types, every boundary, a kill for every promise
	$(PYTEST) $(SHORT) -m 'not full and not soak'

test-full: fetch lint test-native ## everything, up to an hour: all kill tables, certification, a cluster, Spark 4.1
	$(PYTEST) -m 'not soak'
	tools/test_spark41.sh

soak: fetch ## random kills, fuzzing and schedules: N=5 rounds, or ARGS='--minutes 60'
	$(BIN)/python -m devtools.soak $(if $(N),--rounds $(N)) $(ARGS)

lint: setup ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	cargo fmt --manifest-path native/Cargo.toml --all --check
	cargo clippy --quiet --release $(IN_WORKSPACE) --all-targets -- -D warnings
	$(LOOM) clippy --quiet $(IN_CORE) --lib --tests -- -D warnings

lock: setup ## write the lock files anew from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --group dev \
		--no-emit-index-url --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --group bench --constraints requirements.lock \
		--no-emit-index-url --no-header --python-version 3.11 -o benchmarks/requirements.lock

proto: setup ## generate the gRPC code anew from proto/
	$(BIN)/python tools/generate_proto.py

# Run as modules, so that they find devtools/.
bench: setup ## measure everything that docs/benchmarks.md has figures of
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes \
		--requirement benchmarks/requirements.lock
	$(BIN)/python -m benchmarks.protocol
	$(BIN)/python -m benchmarks.postgres
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.sustained
	$(BIN)/python -m benchmarks.idle_streams
	$(BIN)/python -m benchmarks.restart
	$(BIN)/python -m benchmarks.pipeline
	$(BIN)/python -m benchmarks.sinks

# First what needs no server, then PostgreSQL, Redis, a bucket, and Kafka, as source of the former too.
certify: setup ## try every guarantee with faults, and write what held to docs/
	$(BIN)/headrace certify --seed 1 --json docs/certification.json
	$(BIN)/python -m devtools.certify --seed 1 --add docs/certification.json \
		--json docs/certification.json --html docs/certification.html --markdown docs/certification.md

clean: ## remove .venv, caches, downloads and builds
	rm -rf .venv .jars .pytest_cache .mypy_cache .ruff_cache .hypothesis .soak.json dist build native/target
	rm -f src/headrace/_native.*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
