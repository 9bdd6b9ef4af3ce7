# One command per task; `make help` lists them. Every target builds the environment it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OUT ?= out
LINTED := src lab tests examples docs/conf.py
# every test that starts a process would compile all sources again
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help

.PHONY: help
help:  ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-15s %s\n", $$1, $$2}'

.PHONY: java
java:
	@java -version 2>&1 | awk -F '"' '/version/ {split($$2, v, "."); ok = (v[1] >= 17)} END {exit !ok}' || \
	{ echo "fluxen: Spark needs Java 17 or newer and 'java -version' does not show it; install one (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) and put it on PATH"; exit 1; }

$(READY): pyproject.toml lab/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	{ echo "fluxen: Python 3.10 or newer is needed and '$(PYTHON)' is older; run make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "building $(VENV) (about a minute the first time)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]' -e ./lab
	@touch $(READY)

.PHONY: env
env: java $(READY)  ## build .venv at the root

.PHONY: demo
demo: env  ## Spark's own join, fluxen, and fluxen while it adapts, side by side
	@$(BIN)/fluxen demo

.PHONY: docs
docs: $(READY)  ## the documentation as a site in $(OUT)/docs; fails on any warning
	@$(BIN)/python -m sphinx -q -W --keep-going -d $(OUT)/docs-trees docs $(OUT)/docs
	@echo "open $(OUT)/docs/index.html"

.PHONY: lint
lint: $(READY)  ## ruff, mypy strict, import layers
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/ruff format --check $(LINTED)
	@$(BIN)/mypy
	@$(BIN)/lint-imports

NO_JVM := not spark and not cluster and not chaos and not slow and not connectors

.PHONY: check
check: lint  ## lint, types, the tests that need no JVM but the long ones; a tenth of the random cases
	@FLUXEN_HUNT=0.1 $(BIN)/pytest -q -n 2 -m "$(NO_JVM) and not long"

.PHONY: test
test: env lint  ## everything CI runs: lint, types, doctests, tests on real Spark
	@FLUXEN_HUNT=0.25 $(BIN)/pytest -n 2 --dist loadfile -m "not slow and not connectors"

OLDEST := .venv-oldest
$(OLDEST)/.ready: pyproject.toml lab/pyproject.toml
	@$(PYTHON) -m venv $(OLDEST)
	@$(OLDEST)/bin/pip install --quiet --disable-pip-version-check -e . \
	  -e ./lab 'pyspark==3.5.0' 'pyarrow==15.0.2' 'numpy==1.26.4' 'pandas==2.2.*' setuptools pytest pytest-timeout hypothesis
	@touch $@

.PHONY: test-oldest
test-oldest: java $(OLDEST)/.ready  ## smoke test on the oldest supported versions
	@$(OLDEST)/bin/pytest -q -W ignore::DeprecationWarning tests/state tests/spark/test_split.py \
	  tests/spark/test_operators.py tests/spark/test_sinks.py tests/spark/test_flush.py tests/spark/test_watermarks.py \
	  tests/spark/test_query.py tests/spark/test_query_property.py tests/docs/test_examples.py

LAKE := .venv-connectors
$(LAKE)/.ready: pyproject.toml lab/pyproject.toml
	@$(PYTHON) -m venv $(LAKE)
	@$(LAKE)/bin/pip install --quiet --disable-pip-version-check -e '.[dev]' -e ./lab 'pyspark==4.1.1'
	@touch $@

.PHONY: test-connectors
test-connectors: env $(LAKE)/.ready  ## real Kafka, Delta and Iceberg, through kills; what cannot be fetched is skipped
	-@$(BIN)/python -m fluxen_lab.connectors.jars
	@$(BIN)/pytest -m connectors tests/connectors
	@$(LAKE)/bin/pytest -m connectors tests/connectors

.PHONY: chaos
chaos: env  ## kill the driver at many random moments and compare with the oracle
	@FLUXEN_CHAOS_KILLS=30 $(BIN)/pytest -m "chaos and not connectors" tests -q

.PHONY: standalone
standalone: env  ## a job on a standalone cluster, started as the documentation says
	@$(BIN)/pytest -q tests/cluster/test_standalone.py

.PHONY: hunt
hunt: env  ## property tests with new random cases, HUNT times as many (10)
	@FLUXEN_HUNT=$(or $(HUNT),10) $(BIN)/pytest -q --timeout 7200 tests/operators tests/spark/test_property.py tests/spark/test_query_property.py

.PHONY: browser
browser:  ## install Chromium, with which the dashboard is tested (Debian, Ubuntu); without it those tests are skipped
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	{ command -v apt-get >/dev/null || { echo "fluxen: no apt-get here; install Chromium and its chromedriver by hand and put both on PATH"; exit 1; }; \
	  apt-get update -qq && apt-get install -qq -y chromium chromium-driver; }

.PHONY: dashboard
dashboard: env browser  ## the dashboard in a browser at 1,000 sites, 4,096 groups and 100,000 epochs; several minutes
	@$(BIN)/pytest -q --timeout 1800 -m slow tests/dashboard

.PHONY: soak
soak: env  ## a compressed month of several queries: does anything grow? Table and plot into $(OUT)/soak; about an hour
	@$(BIN)/python -m fluxen_lab.benchmarks.soak --out $(OUT)/soak

.PHONY: bench
bench: env  ## measure against Spark's own operators; JSON into $(OUT)/bench
	@mkdir -p $(OUT)/bench
	@for b in $$($(BIN)/fluxen bench --list); do $(BIN)/fluxen bench $$b --json > $(OUT)/bench/$$b.json || exit 1; done

FIGURES := figure --all --mutate --resume --out docs/evidence --page docs/evidence.md
.PHONY: figures
figures: $(READY)  ## the papers' figures that need no Spark, and whether their claims can fail, into docs/evidence.md; resumes
	@$(BIN)/fluxen $(FIGURES) --spark none --jobs 2

.PHONY: figures-spark
figures-spark: env  ## the same for the figures that run on Spark; hours
	@$(BIN)/fluxen $(FIGURES) --spark only

.PHONY: format
format: $(READY)  ## apply ruff's formatting
	@$(BIN)/ruff format $(LINTED)
	@$(BIN)/ruff check --fix $(LINTED)
