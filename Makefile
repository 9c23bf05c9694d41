# Every command a person runs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TEXT ?=
KAFKA ?=
PYTEST_ARGS ?=
CHAOS_ARGS ?= --minutes 10

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint types imports chaos fmt lock kafka redis clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## build .venv with all extras, from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "streamfreq needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@touch $(STAMP)

demo: $(STAMP) ## the daemon on real text, live, a minute (KAFKA=1: a real broker; TEXT=path: your file)
	@$(BIN)/python -m tests.services $(if $(KAFKA),kafka --run) $(BIN)/streamfreq demo $(if $(TEXT),--text '$(TEXT)')

test: $(STAMP) ## all tests, with a real Kafka broker and real Redis servers
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

check: lint types imports test ## lint, types, import rules, tests: what CI runs

lint: $(STAMP) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

imports: $(STAMP) ## which part may import which
	$(BIN)/lint-imports

chaos: $(STAMP) ## ten minutes of faults on real services (CHAOS_ARGS="--seed 7 --minutes 2")
	$(BIN)/python -m benchmarks.chaos $(CHAOS_ARGS)

fmt: $(STAMP) ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## write requirements.lock anew (names, versions, hashes)
	$(PYTHON) -m venv .cache/uv && .cache/uv/bin/python -m pip install --quiet uv
	.cache/uv/bin/uv pip compile pyproject.toml --all-extras --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-annotate --no-header -q -o requirements.lock

kafka: $(STAMP) ## a throwaway real Kafka broker in the foreground; prints "ready HOST:PORT"
	@$(BIN)/python -m tests.services kafka

redis: $(STAMP) ## a throwaway Redis-protocol server in the foreground; prints "ready HOST:PORT"
	@$(BIN)/python -m tests.services redis

clean: ## remove what the targets built
	rm -rf $(VENV) .cache build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
