# Each target is one command. `make PYTHON=python3.12 VENV=.venv-3.12 test` takes another Python;
# ARGS goes to the command: `make up ARGS="--api-port 0"`, `make test ARGS="-k ledger"`.
PYTHON ?= python3
VENV ?= .venv
ARGS ?=
SEED ?= 1
MINUTES ?= 3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo up test chaos soak check bench bench-peers

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Make a virtual environment with every extra

demo: install ## Start the stack, classify some photos through it, print a table, end
	$(BIN)/tidegate demo $(ARGS)

up: install ## Start the stack with Flower and serve until Ctrl-C
	$(BIN)/tidegate up $(ARGS)

test: install ## Run every test, a file in each of two processes at a time: most of them wait for something
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile $(ARGS)

chaos: install ## Kill and freeze every part under load, by SEED= for MINUTES=; fails unless every promise is kept
	$(BIN)/python -m tests.chaos --seed $(SEED) --minutes $(MINUTES)

soak: install ## Run 30,000 jobs through one worker and look that its memory does not grow
	$(BIN)/python -m tests.chaos.soak $(ARGS)

check: install ## Lint, formatting, types, and who may import whom
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: install ## Measure the queue beside its peers, in under ten minutes, and write benchmarks/results
	$(BIN)/python -m benchmarks

bench-peers: install ## Measure beside BentoML's tasks and Ray Serve, which are large to install
	$(BIN)/python -m benchmarks.peers_http

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]' -c constraints.txt
	touch $@
