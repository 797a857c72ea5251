# Everything a contributor needs, from a bare machine with Python 3.11 (with venv) and make.
# `make` alone lists the targets. Nothing here needs root; all of it lives in .venv.

PYTHON ?= python3
SEEDS ?= 500
FRESH_SEEDS ?= 150
HOURS ?= 1
REPORT ?= sim-reports
VENV := .venv
BIN := $(VENV)/bin
RUN_STAMP := $(VENV)/.installed-run
STAMP := $(VENV)/.installed
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV_VENV := $(VENV)/lock-tool
COMPILE = $(UV_VENV)/bin/uv pip compile --quiet --upgrade --universal --no-strip-extras --generate-hashes --no-header --no-annotate

TEST := $(BIN)/python -m pytest --durations=10

SIM := $(BIN)/python -m testkit.sim
SIM_FIRST := $(if $(FIRST),--first $(FIRST))
SIM_ARGS := $(if $(SEED),--seed $(SEED) $(if $(KEEP),--keep $(KEEP)),$(if $(SCENARIO),--scenario $(SCENARIO),$(if \
	$(KNOWN),--known $(KNOWN),$(if $(EVERY_COMMIT),--every-commit,--seeds $(SEEDS) $(SIM_FIRST)))))

# Kept bytecode halves the start of everything; __pycache__ is not part of the tree.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
TARGETS := help setup up down wheel test lint bench sim sim-fresh sim-campaign sim-mutants crds docs check lock test-mutants test-crash test-e2e test-kubernetes test-karmada test-containers kubectl kube-assets clean
.PHONY: $(TARGETS)

# `make bench hostile store` runs these two benches: every word after bench that is not a target.
ifeq ($(firstword $(MAKECMDGOALS)),bench)
SELECTED_BENCHES := $(filter-out $(TARGETS),$(MAKECMDGOALS))
.PHONY: $(SELECTED_BENCHES)
$(SELECTED_BENCHES): bench ; @:
endif

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | \
		while IFS="$$(printf '\t')" read -r target text; do printf '  %-12s %s\n' "$$target" "$$text"; done

setup: $(STAMP) ## Install into .venv what development needs; quick when nothing changed

# What the platform needs to run, and the build tool that installs it.
$(RUN_STAMP): requirements/run.lock requirements/build.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one with: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "Installing run-time dependencies into $(VENV)."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP_INSTALL) --require-hashes -r requirements/run.lock -r requirements/build.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# Contains everything in run.lock in the same versions, so `make up` does not install again.
$(STAMP): $(RUN_STAMP) requirements/dev.lock
	@echo "Installing development dependencies into $(VENV); a minute or two the first time."
	$(PIP_INSTALL) --require-hashes -r requirements/dev.lock
	@touch $@

up: $(RUN_STAMP) ## Start the whole platform on this machine, in the background
	$(BIN)/datumctl compute local up --detach

down: $(RUN_STAMP) ## Stop the platform and its published ports; its state stays
	$(BIN)/datumctl compute local down --all

wheel: $(RUN_STAMP) ## Build dist/datum_compute-VERSION-py3-none-any.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist .

test: setup ## Run all fast tests (no killed processes, no real sockets)
	$(TEST) -n auto --maxprocesses=8 -m "not crash and not e2e and not containers and not mutants"
	@echo "real containers are not part of this: make test-containers"

lint: setup ## Check format, style, types, house rules, documents and generated files
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_house.py tests/test_docs.py
	$(BIN)/python -m hack.generate --check
	$(BIN)/python -m hack.report_sizes

check: lint test ## What every change must pass: lint and test

bench: setup ## Measure, print a table, write bench/results/*.json; `make bench store` runs one
	$(BIN)/python -m bench $(SELECTED_BENCHES)

sim: setup ## Run the whole federation in virtual time (SEEDS=n FIRST=n; SEED=n or SCENARIO=file replays; EVERY_COMMIT=1)
	$(SIM) $(SIM_ARGS)

sim-fresh: setup ## Run 150 seeds derived from the committed tree (FRESH_SEEDS=n); a clone runs the same ones
	$(SIM) --tree $$(git rev-parse 'HEAD^{tree}') --seeds $(FRESH_SEEDS)

sim-campaign: setup ## Search fresh seeds for HOURS=h from FIRST=n, and write a report to REPORT=folder
	$(SIM) --hours $(HOURS) $(SIM_FIRST) --report $(REPORT)

test-mutants: setup ## Replay the recorded scenario of every mutant; each must be found
	$(TEST) -n auto --maxprocesses=8 -m mutants

sim-mutants: setup ## Find a seed for every mutant, within 1,000 (MUTANTS="name ..."; long)
	$(BIN)/python -m testkit.sim.mutants.search --findings tests/sim/mutant_findings $(MUTANTS)

crds: setup ## Write the generated files: deploy/ and docs/reference
	$(BIN)/python -m hack.generate

docs: crds ## The same as crds

test-crash: setup ## Kill a writing process again and again; nothing acknowledged may be lost
	$(TEST) -m crash

test-e2e: setup ## Drive real processes over the real socket
	$(TEST) -n 2 --dist loadfile -m "e2e and not kubernetes"

test-kubernetes: setup ## The same against real Kubernetes API servers; needs make kube-assets once
	$(TEST) -n 2 --dist loadfile $(AGAIN) -m "kubernetes and not karmada"

test-karmada: setup ## The same with a real Karmada as the hub; needs make kube-assets once
	$(TEST) -n 2 --dist loadfile $(AGAIN) -m karmada

test-containers: setup ## Run instances on a real podman, with a registry beside it (needs root)
	$(TEST) -n 2 --dist loadfile $(AGAIN) tests/containers -m containers

kubectl: setup ## Print a kubectl that is new enough; built with Go if the machine has none
	@$(BIN)/python -m hack.find_kubectl

kube-assets: setup ## Print folders with etcd, real Kubernetes API servers and Karmada; built with Go once, 25 minutes
	@$(BIN)/python -m hack.build_assets

lock: $(UV_VENV) ## Pin the newest versions of all dependencies, with hashes
	$(COMPILE) --extra uvloop --output-file requirements/run.lock pyproject.toml
	printf 'hatchling\neditables\n' | $(COMPILE) --output-file requirements/build.lock -
	$(COMPILE) --extra uvloop --extra otel --extra clients-test --extra dev --output-file requirements/dev.lock pyproject.toml

$(UV_VENV): | $(STAMP)
	$(BIN)/python -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check uv

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src testkit tests bench hack -name __pycache__ -type d -prune -exec rm -rf {} +
