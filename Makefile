# Two commands matter to a newcomer: `make demo` and `make test`. Both set everything up first.
.DEFAULT_GOAL := help
SHELL := /bin/bash
PY := .venv/bin/python
# The protocol's own tests, and they alone, must cover its branches (pyproject.toml says how many).
TRANSPORT := $(wildcard tests/unit/mrc tests/unit/rc)

.PHONY: help demo test lint setup notebooks bench bench-bringup test-chaos test-cycles test-histories install-nightly uninstall-nightly clean
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
	@# Fabrics are measured one at a time; what is pure runs two files at a time.
	@$(PY) -m pytest --ignore=tests/unit
	@$(PY) -m pytest -n 2 --dist loadfile tests/unit $(addprefix --ignore=,$(TRANSPORT))

test-histories: setup ## 50,000 generated histories of the transport over a hostile network (10 minutes); HISTORIES=n for others
	@$(PY) -m tests.histories $(or $(HISTORIES),50000)

test-chaos: setup ## 200 runs killed at random moments, nothing left behind; then a whole quickstart (half an hour)
	@CHAOS_KILLS=$${CHAOS_KILLS:-200} $(PY) -m pytest -s -o faulthandler_timeout=0 tests/chaos

test-cycles: setup ## 200 build and tear-down cycles with 256 descriptors (a minute)
	@ALL_CYCLES=1 $(PY) -m pytest -k build_and_tear_down tests/netns/test_pitfalls.py

bench: setup ## benchmarks, ratios in one run
	@$(PY) -m benchmarks

bench-bringup: setup ## 1,024 links against stock Mininet and bare ip and tc (2 minutes); then 4,096 links
	@$(PY) -m benchmarks.bringup && $(PY) -m benchmarks.bringup --large

NOTEBOOKS := results/notebooks
notebooks: setup ## run the notebooks on fresh short runs (2 minutes); they are then in results/notebooks
	@$(PY) -m pip install -q -r requirements-notebooks.txt
	@for policy in oblivious mrc; do \
	  ./run_experiment.py quickstart --repeat 2 --no-figures --out $(NOTEBOOKS) --set transport.policy=$$policy --set expect=[] \
	    --set measure.duration=10s --set "faults=[{at: 4s, link: 'p0t0-0:p0t1-2', action: down, for: 3s}]"; \
	  case $$? in 0|4) ;; *) exit 1 ;; esac; done
	@cd $(NOTEBOOKS) && for name in one_run many_runs; do \
	  RUN=quickstart/latest STUDY=. PYTHONPATH=../.. ../../$(PY) -m jupytext --quiet --to ipynb --execute --run-path . \
	    --output $$name.ipynb ../../analysis/notebooks/$$name.py || exit 1; done
	@echo "$(NOTEBOOKS)/one_run.ipynb and $(NOTEBOOKS)/many_runs.ipynb"

UNITS := $(DESTDIR)/etc/systemd/system
NIGHTLY := mrc-testbed-nightly
SUITE ?= nightly
AT ?= *-*-* 02:00:00
install-nightly: setup ## a systemd timer that runs the nightly suite at 2:00 (SUITE=quick, AT='Mon..Fri 03:30'); needs root
	@$(PY) -m testbed nightly --suite=$(SUITE) --write-units=$(UNITS) --at='$(AT)'
	@$(if $(DESTDIR),true,systemctl daemon-reload && systemctl enable --now $(NIGHTLY).timer)

uninstall-nightly: ## take the timer and its service away; results stay
	@$(if $(DESTDIR),true,systemctl disable --now $(NIGHTLY).timer; systemctl stop $(NIGHTLY).service)
	@rm -f $(UNITS)/$(NIGHTLY).timer $(UNITS)/$(NIGHTLY).service
	@$(if $(DESTDIR),true,systemctl daemon-reload)

clean: ## remove caches and the virtual environment
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
