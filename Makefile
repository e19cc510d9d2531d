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

.PHONY: demo test test-monitoring lint docs eval env clean lint-docker test-image test-scale chaos
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

# Tests of the server wait more than they compute, but have several servers a worker: two workers on any machine.
test: env lint
	$(BIN)/python -m pytest -q -n auto --dist loadfile --ignore tests/server tests
	$(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder tests/server

test-monitoring: env $(PROMETHEUS)/prometheus
	PROMETHEUS_PROGRAMS=$(PROMETHEUS) $(BIN)/python -m pytest -q tests/monitoring tests/server/test_prometheus.py

build/prometheus/usr/bin/prometheus:
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null \
	  || { echo "oasr: no prometheus and no apt-get to fetch it with; install it, or set PROMETHEUS to its folder"; exit 1; }
	mkdir -p build/prometheus
	cd build/prometheus && apt-get download prometheus && dpkg-deb -x prometheus_*.deb .

# Load, faults and nonsense for a quarter of an hour; SEED=N repeats a run. Debian's libfaketime lets a clock jump.
FAKETIME := build/faketime/libfaketimeMT.so.1

chaos: env $(FAKETIME)
	FAKETIME_LIBRARY=$(abspath $(FAKETIME)) $(BIN)/python -m pytest -q -p no:cacheprovider tests/chaos \
	  --chaos-json build/chaos.json $(if $(SEED),--chaos-seed $(SEED))

$(FAKETIME):
	@command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null \
	  || { echo "oasr: no apt-get to fetch libfaketime with; copy libfaketimeMT.so.1 to build/faketime"; exit 1; }
	mkdir -p build/faketime
	cd build/faketime && apt-get download libfaketime && dpkg-deb -x libfaketime_*.deb . \
	  && cp usr/lib/*/faketime/libfaketimeMT.so.1 .

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: env
	$(BIN)/python -m oasr_backend.config.documentation > docs/configuration.md.new
	mv docs/configuration.md.new docs/configuration.md
	$(BIN)/python -m oasr_backend.config.env_example > docker/.env.example.new
	mv docker/.env.example.new docker/.env.example

eval: env
	@test -n "$(EVALSET)" || { echo "oasr: name the evaluation set: make eval EVALSET=DIR [JSON=FILE]"; exit 1; }
	$(BIN)/python -m benchmarks.accuracy --evalset "$(EVALSET)" --json "$(JSON)"

# Deployment files against the published rules and schemas; needs npm for that of compose, and haproxy for its file.
COMPOSE_SCHEMA := build/schema/package/schemas/compose.schema.json
KUBERNETES     := $(filter-out %/kustomization.yaml %/adapter-rules.yaml,$(wildcard docker/scale/kubernetes/*.yaml))

lint-docker: env $(COMPOSE_SCHEMA)
	$(BIN)/pip install --quiet $(PIP_ARGS) -e '.[deploy]'
	$(BIN)/hadolint docker/Dockerfile docker/Dockerfile.cpu
	$(BIN)/python docker/test/compose_schema.py $(COMPOSE_SCHEMA) docker/compose.yaml docker/scale/compose.yaml
	$(BIN)/kubernetes-validate --strict $(KUBERNETES)
	SERVER_1=127.0.0.1 SERVER_2=127.0.0.1 haproxy -c -f docker/scale/haproxy.cfg

$(COMPOSE_SCHEMA):
	mkdir -p build/schema
	cd build/schema && npm pack --silent dclint@3.1.0 && tar xzf dclint-3.1.0.tgz package/schemas/compose.schema.json

# Builds the CPU image and runs it as compose does; ENGINE, BASE, BUILD_ARGS and RUN_ARGS: docker/test/test_image.py.
test-image: lint-docker
	$(BIN)/python -m pytest -q -s docker/test/test_image.py

# Two servers behind HAProxy, one of them killed under load; needs the package haproxy.
test-scale: env
	$(BIN)/python -m pytest -q -s docker/test/test_scale.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis
