# Everything a fresh machine needs: `make demo` to see it work, `make test` to check it.
PYTHON ?= $(shell command -v python3.11 || command -v python3 || command -v python)
VENV   := .venv
FOLDER := $(if $(filter Windows_NT,$(OS)),Scripts,bin)
BIN    := $(VENV)/$(FOLDER)
CORE   := $(VENV)/.core
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/tools
# The Pythons of `make wheels`: all of the range that are on PATH and start, or those that are named.
PYTHONS = $(shell for v in 3.11 3.12 3.13; do python$$v -c "" 2>/dev/null && echo python$$v; done; true)

# Real data beside the checkout is used when it is there; the tests that need it skip with a reason elsewhere.
SHARED_DATA := $(wildcard ../shared/data)
ifneq ($(SHARED_DATA),)
export CONTRADPP_DATA ?= $(abspath $(SHARED_DATA))
endif

.PHONY: help install demo test lint types browser unit quick coverage check package audit sbom wheels lowest addresses tag release
.PHONY: soak reproduce benchmark bench docs lock clean

help:            ## list the targets
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The locks are complete and have hashes, which pip checks; it has nothing to resolve.
define create
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement $(1)
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
endef

$(STAMP): requirements.lock pyproject.toml
	$(call create,requirements.lock)
	touch $(CORE) $(STAMP)

install: $(STAMP)  ## create .venv with the locked versions

# What the package itself needs, in the locked versions, is enough to see it work.
$(CORE): requirements-core.lock pyproject.toml
	$(call create,requirements-core.lock)
	touch $(CORE)

# Kept apart from the environment that they look at.
$(TOOLS)/.installed: requirements-release.lock
	$(PYTHON) -m venv $(TOOLS)
	$(TOOLS)/$(FOLDER)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements-release.lock
	touch $@

demo: $(CORE)    ## generate a small shop, build a model, show suggestions
	$(BIN)/contradpp demo

lint: $(STAMP)   ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)  ## strict mypy
	$(BIN)/mypy

browser:         ## Debian's Chromium for the tests of the page, where it may be installed; they skip without it
	@command -v chromium >/dev/null || [ "$$(id -u)" != 0 ] || apt-get install --yes -qq chromium >/dev/null \
	  || (apt-get update -qq && apt-get install --yes -qq chromium >/dev/null) \
	  || echo "Chromium could not be installed: the tests of the page will be skipped."

unit: $(STAMP) browser  ## the test suite, files spread over at most four cores
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile

quick: $(STAMP)  ## the core of the test suite: models, kernels, data, command line
	$(BIN)/pytest --numprocesses auto --maxprocesses 4 --dist loadfile tests/models tests/dpp tests/data tests/cli

coverage: $(STAMP) browser  ## the lines that the test suite runs, by file; sys.monitoring makes it cheap from Python 3.12 on
	COVERAGE_CORE=$$($(BIN)/python -c "import sys; print('sysmon' if sys.version_info >= (3, 12) else 'ctrace')") \
	  $(BIN)/coverage run -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --skip-covered --sort cover

test: lint types unit  ## lint, types and the whole test suite

check: test package audit  ## everything of `test`, the archives, and the known vulnerabilities of the locked versions

# Without the service that knows the vulnerabilities there is no verdict: then it says so, and does not fail.
audit: $(TOOLS)/.installed  ## known vulnerabilities of the locked versions
	@found=$$($(TOOLS)/$(FOLDER)/pip-audit --requirement requirements.lock --no-deps \
	  --disable-pip --progress-spinner off --timeout 10 2>&1); code=$$?; \
	unknown=$$(echo "$$found" | grep -c "could not be audited"); \
	locked=$$(grep -c "^[a-z].*==" requirements.lock); \
	if [ $$unknown -ge $$locked ] || echo "$$found" | grep -qE "ConnectionError|Max retries|ServiceError|timed out"; then \
	  echo "No audit: the vulnerability service cannot be reached from here ($$unknown of $$locked not looked up)."; \
	  exit 0; \
	fi; \
	echo "$$found"; exit $$code

package: $(STAMP) $(TOOLS)/.installed  ## wheel and source archive in dist/, checked
	rm -rf dist
	$(BIN)/python -m hatchling build
	$(TOOLS)/$(FOLDER)/twine check --strict dist/*

sbom: $(TOOLS)/.installed  ## the bill of materials of what the package needs, in dist/ (CycloneDX)
	mkdir -p dist
	$(TOOLS)/$(FOLDER)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type library --output-reproducible \
	  --output-file dist/contradpp.cdx.json requirements-core.lock

wheels: package  ## install the wheel in a clean environment of every Python of PYTHONS, and run the demo
	@set -e; for python in $(PYTHONS); do \
	  rm -rf build/try; $$python -m venv build/try; echo "== $$(build/try/$(FOLDER)/python --version)"; \
	  build/try/$(FOLDER)/python -m pip install --quiet "$$(ls dist/*.whl)[report,serve]"; \
	  (cd build/try && $(FOLDER)/contradpp demo > demo.txt && grep "^conditional" demo.txt && grep "All of it" demo.txt); \
	done

lowest: $(TOOLS)/.installed  ## the core of the test suite with the lowest versions that pyproject.toml allows
	$(TOOLS)/$(FOLDER)/uv venv --quiet --clear --python $(PYTHON) build/lowest
	$(TOOLS)/$(FOLDER)/uv pip install --quiet --python build/lowest --resolution lowest-direct \
	  --editable ".[download,excel,plot,report,serve,tune]"
	$(TOOLS)/$(FOLDER)/uv pip install --quiet --python build/lowest pytest pytest-timeout hypothesis mpmath "pandas==2.2.*" "polars==1.3.*"
	build/lowest/$(FOLDER)/python -m pytest tests/models tests/dpp tests/data tests/cli

addresses:       ## fail while the project's addresses are placeholders
	@! grep -n "\.example/" pyproject.toml

tag: $(STAMP)    ## fail unless TAG is that of the version, and CHANGELOG.md has its date
	test "$(TAG)" = "v$$($(BIN)/hatchling version)"
	grep -q "^## $$($(BIN)/hatchling version) (20" CHANGELOG.md

release: test docs package sbom wheels  ## a dry run of a release: it publishes nothing
	@$(MAKE) --no-print-directory addresses || echo "Before publishing: replace these addresses."
	@echo "To release: date the version in CHANGELOG.md, commit, tag v$$($(BIN)/hatchling version), push the tag."

soak: $(STAMP)   ## the faults of the tests many times over: 30 kills, 110,000 damaged files, 100,000 slates with rules
	$(BIN)/python -m experiments speed soak

reproduce: $(STAMP)  ## the paper's tables and figures again, into reproduction/: about an hour on one core
	$(BIN)/python -m experiments reproduce all --trials 5

benchmark: $(STAMP)  ## every model whose package is installed on every data set, quickly (one seed), into reproduction/; CONTRADPP_DATA has the data
	$(BIN)/python -m experiments benchmark --quick

bench: $(STAMP)  ## speed as ratios, one table
	$(BIN)/python -m experiments bench

docs: $(STAMP)   ## the documentation as a site in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# One lock for all systems and Pythons; the smaller ones agree with it.
LOCK = $(TOOLS)/$(FOLDER)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11

lock: $(TOOLS)/.installed  ## resolve pyproject's ranges anew into the requirements*.lock
	$(LOCK) --group build --extra dev --extra docs --extra plot --extra ray --extra report --extra serve --extra tune \
	  --extra download --extra excel --extra integrations pyproject.toml --output-file requirements.lock
	$(LOCK) --group build --extra report --extra serve --constraint requirements.lock \
	  pyproject.toml --output-file requirements-core.lock
	$(LOCK) --group release --output-file requirements-release.lock

clean:           ## remove the environment and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
