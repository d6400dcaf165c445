# Every target makes what it needs. On a new machine Python 3.11 (or later), make and the package index are enough.
SHELL := /bin/bash
.SHELLFLAGS := -eu -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Where a machine forbids it, each of the hundred processes of a run would compile our sources anew.
unexport PYTHONDONTWRITEBYTECODE

# The first that runs, is new enough and can make virtual environments; being on PATH alone proves nothing.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14 python; do \
  $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { echo $$python; break; }; done)
NEEDS_PYTHON = [ -n "$(PYTHON)" ] || { echo "mailhub needs Python 3.11 or later with its venv module" \
  "(on Debian and Ubuntu: python3-venv): make PYTHON=/path/to/python3.11"; exit 1; }
# On two cores: tests wait a good part of their time, and with more of them nothing is gained.
TEST_PROCESSES ?= 5
TESTS ?=
RUN_TESTS = $(PY) tests/run.py -n $(TEST_PROCESSES)
CHAOS ?=
CHANNELS ?=
RELEASE ?=
MATRIX ?=
# name,its numbers; without numbers each takes its own
BENCHMARKS ?= as_run,30000,5,10000 slow_vendors,15,20 latency,200,10 sending,20000,5 http_client,20000,5 described,15000,7 receivers,60,3,12 scale,10000000,200,3 ledger,100000,5 importing \
  smtp,10000,5 adapters,5000,5 front,3,5 nightly,50000 capacity,50000,3 processes,30000,3 bloat,50,2000 operators,1000000,2000000 pages \
  reaching,60,1
BENCH_RESULTS ?= .bench.jsonl
PY := .venv/bin/python
NOT_OURS := --ignore '.venv*'
PIP := $(PY) -m pip --disable-pip-version-check --no-input

.PHONY: help setup test-setup demo test test-slow test-all lint lint-openapi docs docs-pictures docs-reference messages vendored \
  nightly bench bench-page chaos release matrix audit-packages requirements clean venv

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: venv ## make .venv and install what mailhub needs
	@$(MAKE) -s .venv/.runtime-installed

test-setup: venv ## the same with what the tests and the linters need
	@$(MAKE) -s .venv/.dev-installed

demo: setup ## the main job from the first row to the last receipt (CHANNELS=all: letters, SMS and e-mail side by side)
	@$(if $(CHANNELS),$(MAKE) -s .venv/.extras-installed)
	$(PY) manage.py demo $(if $(CHANNELS),--channels=$(CHANNELS))

test: test-setup ## the fast tests, on a database and a Redis of their own (TEST_PROCESSES=5, TESTS="any paths or options")
	$(RUN_TESTS) --tier fast $(TESTS) </dev/null

test-slow: test-setup ## the other tests: browsers, started processes, servers that end
	$(RUN_TESTS) --tier slow $(TESTS) </dev/null

test-all: test-setup ## the tests of both tiers
	$(RUN_TESTS) $(TESTS) </dev/null

nightly: test-setup ## all tests with what docs/faults.md runs at night, each promise's mutant, a storm of five minutes: some hours
	MAILHUB_NIGHTLY=1 $(RUN_TESTS) $(TESTS) </dev/null
	$(PY) -m tests.mutants </dev/null
	$(PY) -m tests.chaos $(or $(CHAOS),--seconds 300) </dev/null
	$(MAKE) -s audit-packages

lint: test-setup ## style, types, borders between the packages, migrations
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	$(PY) manage.py makemigrations --check --dry-run
	$(PY) manage.py check

lint-openapi: setup ## the description of the API, by the rules of Redocly (needs Node.js)
	$(PY) manage.py shell -v 0 -c "import json; from mailhub.front.api import api; print(json.dumps(api.get_openapi_schema(), indent=1, default=str))" >.openapi.json
	npx --yes @redocly/cli@2.77.0 lint --extends recommended .openapi.json

docs: .venv-docs/.installed ## the documents as a site in site/; a dead link or anchor fails
	@rm -rf site
	.venv-docs/bin/python -m sphinx -b html -c docs/tooling --fail-on-warning --keep-going --quiet . site
	@echo "The site is site/index.html"

docs-pictures: test-setup ## docs/pictures: the real pages while the demo runs, by a headless Chromium
	$(PY) -m docs.tooling.screenshots

vendored: setup ## scripts of others in static/, from npm by vendored.toml (needs Node.js)
	$(PY) -m docs.tooling.vendored

docs-reference: test-setup ## docs/reference/commands.md, docs/states.md, tables of other pages, deploy/alerts from the code
	$(PY) -m docs.tooling.commands
	$(PY) -m docs.tooling.tables
	$(PY) -m docs.tooling.alarms
	$(PY) -m deploy.tooling.alerts
	$(PY) manage.py states > docs/states.md

messages: setup ## the German catalogue with the texts that code and templates have now (needs GNU gettext); then fill in what is empty
	$(PY) -m docs.tooling.messages -l de --add-location=file --no-wrap --no-obsolete $(NOT_OURS) --ignore 'tests/*' --ignore 'docs/*' \
	  --ignore 'sandbox/*' --ignore 'benchmarks/*'
	$(PY) manage.py compilemessages -l de $(NOT_OURS)

bench: test-setup ## all measurements, with yardsticks of the same run: about an hour (BENCHMARKS="sending,50000,5 ledger")
	@$(MAKE) -s .venv/.bench-installed
	@for run in $(BENCHMARKS); do \
	  set -- $${run//,/ }; name=$$1; shift; echo "== $$name $$*"; \
	  BENCH_RESULTS=$(BENCH_RESULTS) $(PY) -m "benchmarks.$$name" "$$@"; \
	done

bench-page: ## docs/benchmarks.md from what `make bench` kept; each table counts as it was measured last
	$(PY) -m benchmarks.page $(BENCH_RESULTS) docs/benchmarks.md

chaos: test-setup ## kill, cut off and restart everything while mail goes out (CHAOS="--seconds 60 --seed 1", "--calm")
	$(PY) -m tests.chaos $(CHAOS) </dev/null

release: .venv-release/.installed ## wheel, source package, SBOM, licences, checksums in dist/, tried in an empty environment (RELEASE=--quick)
	.venv-release/bin/python -m deploy.tooling.release $(RELEASE)

matrix: test-setup ## demo and fast tests by another Python, PostgreSQL or Redis (MATRIX="--python python3.13 --postgres bundled --redis /usr/bin")
	$(PY) -m deploy.tooling.matrix $(MATRIX) -n $(TEST_PROCESSES) </dev/null

audit-packages: .venv-release/.installed ## known weaknesses of the pinned packages, from the package index
	.venv-release/bin/python -m deploy.tooling.weaknesses

requirements: venv ## pin the newest versions with hashes: requirements.txt, -extras, -dev, -bench, -docs, -uv
	$(PIP) install --quiet uv
	for name in requirements requirements-extras requirements-dev requirements-bench requirements-docs requirements-uv \
	  deploy/requirements-release; do \
	  $(PY) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	    --no-annotate --no-header --output-file $$name.txt $$name.in; \
	done

clean: ## stop the embedded servers; remove .venv and all caches, but no data
	-[ ! -x $(PY) ] || $(PY) manage.py services stop
	rm -rf .venv .venv-docs .venv-release .venv-matrix-* site dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .openapi.json \
	  staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,FILE,ENVIRONMENT): uv takes a tenth of pip's time for the same packages with the same hashes. It reads no
# configuration of pip: where pip is told of an index or a proxy, and where uv cannot be had, pip installs them itself.
define install
@echo "Installing $(1) into $(2)"
@pip="$(2)/bin/python -m pip --disable-pip-version-check --no-input"; \
if ! { ! $$pip config list | grep -qE "index-url|no-index|proxy" \
    && $$pip install --quiet --require-hashes -r requirements-uv.txt \
    && $(2)/bin/uv pip install --quiet --python $(2)/bin/python --require-hashes -r $(1); }; then \
  $$pip install --quiet --require-hashes -r $(1); \
fi
endef

.venv/.runtime-installed: requirements.txt
	$(call install,requirements.txt,.venv)
	@touch $@

.venv/.extras-installed: requirements-extras.txt
	$(call install,requirements-extras.txt,.venv)
	@touch $@ .venv/.runtime-installed

.venv/.dev-installed: requirements-dev.txt
	$(call install,requirements-dev.txt,.venv)
	@touch $@ .venv/.runtime-installed .venv/.extras-installed

.venv/.bench-installed: requirements-bench.txt
	$(call install,requirements-bench.txt,.venv)
	@touch $@ .venv/.runtime-installed .venv/.extras-installed .venv/.dev-installed

# Of its own: nothing of the product or of its tests waits for what only makes the site.
.venv-docs/.installed: requirements-docs.txt
	@$(NEEDS_PYTHON)
	@rm -rf .venv-docs
	"$(PYTHON)" -m venv .venv-docs
	$(call install,requirements-docs.txt,.venv-docs)
	@touch $@

.venv-release/.installed: deploy/requirements-release.txt
	@$(NEEDS_PYTHON)
	@rm -rf .venv-release
	"$(PYTHON)" -m venv .venv-release
	$(call install,deploy/requirements-release.txt,.venv-release)
	@touch $@

# A virtual environment knows its own path: one that was moved, copied or lost its Python is made anew. (In a make
# of its own, because make looks at the stamps before it runs this.)
venv:
	@if ! { grep -qsF "$$(pwd -P)/.venv" .venv/bin/activate && $(PY) -m pip --version >/dev/null 2>&1; }; then \
	  $(NEEDS_PYTHON); \
	  rm -rf .venv; \
	  "$(PYTHON)" -m venv .venv || { rm -rf .venv; exit 1; }; \
	fi
