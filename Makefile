# `make help` lists what can be made. Everything that needs the virtual environment makes it first.

PYTHON ?=
BIN := .venv/bin
# Newer than what it depends on when .venv is complete and up to date.
STAMP := .venv/.up-to-date
# The tests start hundreds of Python processes, each of which would compile every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup fetch demo test-fast test test-full soak lint lock proto bench certify clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## make .venv with everything in it (PYTHON=... chooses the interpreter)

$(STAMP): requirements.lock pyproject.toml tools/setup.sh
	@PYTHON='$(PYTHON)' tools/setup.sh
	@touch $@

demo: setup ## the whole product: made-up orders into a view, with kill -9, compared with DuckDB
	@HEADRACE_JARS_CACHE="$${HEADRACE_JARS_CACHE:-$(CURDIR)/.jars}" $(BIN)/headrace demo

# One process has the Spark session, with all tests on it, and two have the rest, which often wait for servers.
PYTEST := $(BIN)/pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Properties are tried with a quarter of the examples.
SHORT := --hypothesis-profile=short

fetch: setup ## download the servers and jars that the tests need, about 320 MB, once
	@$(BIN)/python -m devtools.fetch

test-fast: setup ## the inner loop, about a minute: no servers, no Spark, no processes
	$(PYTEST) $(SHORT) -m 'not processes and not full and not soak'

test: lint fetch ## what CI runs, about ten minutes: style, types, every boundary, a kill for every promise
	$(PYTEST) $(SHORT) -m 'not full and not soak'

test-full: lint fetch ## everything, up to an hour: all kill tables, certification, a cluster, Spark 4.1
	$(PYTEST) -m 'not soak'
	tools/test_spark41.sh

soak: fetch ## random kills, fuzzing and schedules: N=5 rounds, or ARGS='--minutes 60'
	$(BIN)/python -m devtools.soak $(if $(N),--rounds $(N)) $(ARGS)

lint: setup ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

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
	$(BIN)/python -m benchmarks.pipeline
	$(BIN)/python -m benchmarks.sinks

# First what needs no server, then PostgreSQL, Redis, a bucket, and Kafka, as source of the former too.
certify: setup ## try every guarantee with faults, and write what held to docs/
	$(BIN)/headrace certify --seed 1 --json docs/certification.json
	$(BIN)/python -m devtools.certify --seed 1 --add docs/certification.json \
		--json docs/certification.json --html docs/certification.html --markdown docs/certification.md

clean: ## remove .venv, caches, downloads and builds
	rm -rf .venv .jars .pytest_cache .mypy_cache .ruff_cache .hypothesis .soak.json dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
