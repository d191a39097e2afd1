# Two commands matter to a newcomer: `make demo` and `make test`. Both set everything up first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
# The protocol's own tests, and they alone, must cover its branches (pyproject.toml says how many).
TRANSPORT := $(wildcard tests/unit/mrc tests/unit/rc)

.PHONY: help demo test lint setup bench bench-bringup test-cycles test-histories clean
help: ## what can be done here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## install what is missing (Debian 12, Ubuntu 24.04); the second time takes seconds
	@./setup.sh

demo: setup ## set up, run the quickstart, say where the report is
	@./run_experiment.py quickstart

lint: setup ## ruff and mypy
	@$(PY) -m ruff format --check . && $(PY) -m ruff check . && $(PY) -m mypy

test: setup lint ## every test; under 20 minutes on 2 cores
	@$(PY) -m coverage run -m pytest $(TRANSPORT) && $(PY) -m coverage report
	@$(PY) -m pytest $(addprefix --ignore=,$(TRANSPORT))

test-histories: setup ## 50,000 generated histories of the transport over a hostile network (10 minutes); HISTORIES=n for others
	@$(PY) -m tests.histories $(or $(HISTORIES),50000)

test-cycles: setup ## 200 build and tear-down cycles with 256 descriptors (a minute)
	@ALL_CYCLES=1 $(PY) -m pytest -k build_and_tear_down tests/netns/test_pitfalls.py

bench: setup ## benchmarks, ratios in one run
	@$(PY) -m benchmarks

bench-bringup: setup ## 1,024 links against stock Mininet and bare ip and tc (2 minutes); then 4,096 links
	@$(PY) -m benchmarks.bringup && $(PY) -m benchmarks.bringup --large

clean: ## remove caches and the virtual environment
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
