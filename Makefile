# Everything a fresh machine needs: `make demo` to see it work, `make test` to check it.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
CORE   := $(VENV)/.core
STAMP  := $(VENV)/.installed

# Real data beside the checkout is used when it is there; the tests that need it skip with a reason elsewhere.
SHARED_DATA := $(wildcard ../shared/data)
ifneq ($(SHARED_DATA),)
export CONTRADPP_DATA ?= $(abspath $(SHARED_DATA))
endif

.PHONY: help install demo test lint types browser unit check package audit soak reproduce benchmark bench docs lock clean

help:            ## list the targets
	@grep -hE '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $(CORE) $(STAMP)

install: $(STAMP)  ## create .venv with the locked versions

# What the package itself needs, in the locked versions, is enough to see it work.
$(CORE): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[report,serve]'
	touch $(CORE)

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

test: lint types unit  ## lint, types and the whole test suite

check: test package audit  ## everything of `test`, the archives, and the known vulnerabilities of the locked versions

# Kept apart from the environment it looks at. Without the service that knows the vulnerabilities there is no verdict:
# then it says so, and does not fail.
audit: $(STAMP)  ## known vulnerabilities of the locked versions
	@$(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/audit "pip-audit>=2.7,<3" 2>/dev/null \
	  || { echo "No audit: pip-audit cannot be fetched here."; exit 0; }; \
	found=$$(PYTHONPATH=$(VENV)/audit $(BIN)/python -m pip_audit --requirement requirements.lock --no-deps \
	  --disable-pip --progress-spinner off --timeout 10 2>&1); code=$$?; \
	unknown=$$(echo "$$found" | grep -c "could not be audited"); \
	locked=$$(grep -c "==" requirements.lock); \
	if [ $$unknown -ge $$locked ] || echo "$$found" | grep -qE "ConnectionError|Max retries|ServiceError|timed out"; then \
	  echo "No audit: the vulnerability service cannot be reached from here ($$unknown of $$locked not looked up)."; \
	  exit 0; \
	fi; \
	echo "$$found"; exit $$code

package: $(STAMP)  ## wheel and source archive in dist/; `make test` checks them
	rm -rf dist
	$(BIN)/python -m hatchling build

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

lock: $(STAMP)   ## resolve pyproject's ranges anew into requirements.lock
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --extra dev --extra docs --extra plot \
	  --extra ray --extra report --extra serve --extra tune --extra download --extra excel --extra integrations \
	  pyproject.toml --output-file requirements.lock

clean:           ## remove the environment and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
