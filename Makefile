# Two commands matter: `make demo` and `make test`. Everything they need is installed into $(VENV).
PYTHON     ?= python3
VENV       ?= .venv
TORCH_SPEC ?= torch==2.13.0
PIP_ARGS   ?=
EVALSET    ?=
JSON       ?= eval.json

BIN := $(VENV)/bin

# Debian's Prometheus, fetched unless it is installed; the folder of its programs.
PROMETHEUS ?= $(or $(patsubst %/,%,$(dir $(shell command -v prometheus))),build/prometheus/usr/bin)

.PHONY: demo test test-monitoring lint docs eval env clean
.DEFAULT_GOAL := demo

env: $(VENV)/.installed

# torch goes first and pinned: a later requirement must find it and not choose another build.
$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' \
	  || { echo "oasr: $(PYTHON) is not Python 3.10-3.12, which the Triton server needs; set PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "oasr: $(PYTHON) has no venv module; on Debian/Ubuntu: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet $(PIP_ARGS) "$(TORCH_SPEC)"
	$(BIN)/pip install --quiet $(PIP_ARGS) -e '.[test]'
	@touch $@

demo: env
	$(BIN)/oasr demo

test: env lint
	$(BIN)/python -m pytest -q -n auto --dist loadfile --ignore tests/server tests
	$(BIN)/python -m pytest -q tests/server

test-monitoring: env $(PROMETHEUS)/prometheus
	PROMETHEUS_PROGRAMS=$(PROMETHEUS) $(BIN)/python -m pytest -q tests/monitoring tests/server/test_prometheus.py

build/prometheus/usr/bin/prometheus:
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null \
	  || { echo "oasr: no prometheus and no apt-get to fetch it with; install it, or set PROMETHEUS to its folder"; exit 1; }
	mkdir -p build/prometheus
	cd build/prometheus && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: env
	$(BIN)/python -m oasr_backend.config.documentation > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md

eval: env
	@test -n "$(EVALSET)" || { echo "oasr: name the evaluation set: make eval EVALSET=DIR [JSON=FILE]"; exit 1; }
	$(BIN)/python -m benchmarks.accuracy --evalset "$(EVALSET)" --json "$(JSON)"

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
