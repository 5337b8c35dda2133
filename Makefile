# `make demo` and `make test` set up what they need; `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(firstword $(shell command -v python3.11) python3)
VENV ?= .venv
CACHE ?= .cache
MODEL := $(CACHE)/models/smollm2-135m-instruct
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PACKAGES := hotwired hotwire_plugin clients bench tests requirements proto
export MYPY_CACHE_DIR := $(CACHE)/mypy
export RUFF_CACHE_DIR := $(CACHE)/ruff

.PHONY: help setup model demo choose test test-all check proto proto-check bench lock clean

help: ## Lists the targets.
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(VENV)/.project ## Makes the virtual environment.

model: $(MODEL)/.complete ## Makes the demo model, SmolLM2-135M-Instruct in fp32.

demo: setup model ## Runs the whole path once, for real, on the CPU.
	$(BIN)/python -m bench.demo

choose: setup model ## Measures layers and scales for the demo's vector.
	$(BIN)/python -m bench.demo.choose

test: setup model ## Runs the CPU tests.
	$(BIN)/python -m pytest

test-all: setup model ## Runs the CPU tests, the slow ones too.
	$(BIN)/python -m pytest -m "not gpu"

check: setup ## Runs ruff, mypy, the import rules and buf.
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir $(CACHE)/import_linter
	cd proto && $(abspath $(BIN))/buf lint

proto: setup ## Regenerates the gRPC stubs and docs/api.md.
	PATH="$(abspath $(BIN)):$$PATH" bash proto/generate.sh .
	$(BIN)/python proto/reference.py docs/api.md

proto-check: setup ## Fails if the committed stubs are stale.
	$(BIN)/python -m pytest -q tests/unit/test_stubs.py

bench: setup model ## Prints the speed and memory figures.
	$(BIN)/python -m bench

lock: $(BIN)/python ## Resolves requirements/base.in anew into requirements/lock.txt.
	$(BIN)/python requirements/make_lock.py

clean: ## Removes what the targets made, but for the virtual environment and the model.
	rm -rf .demo dist $(CACHE)/mypy $(CACHE)/ruff $(CACHE)/import_linter $(CACHE)/pytest

# Each stamp is newer than what it was made from; a changed lock or pyproject.toml makes it again.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11) and "Python 3.11 is needed: make PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.requirements: requirements/lock.txt requirements/check_env.py \
		requirements/vllm_name/pyproject.toml | $(BIN)/python
	@echo "installing the dependencies (about two minutes the first time)"
	$(PIP) install -qq --no-deps -r requirements/lock.txt
	$(PIP) install -qq --no-deps --no-build-isolation ./requirements/vllm_name
	$(BIN)/python requirements/check_env.py
	@touch $@

$(VENV)/.project: pyproject.toml $(VENV)/.requirements
	$(PIP) install -qq --no-deps --no-build-isolation --editable .
	@touch $@

$(MODEL)/.complete: bench/demo/model.py | $(VENV)/.project
	$(BIN)/python -m bench.demo.model $(MODEL)
