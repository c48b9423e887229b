# Everything a person runs. Each target sets itself up: a machine with Python 3.11+ (with venv), git and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What is used is compiled when it is first imported; most of it never is.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

.DEFAULT_GOAL := help
# The tests start some hundred programs: none of them compiles the packages again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help demo test test-changed whole browser image e2e e2e-security bench bench-tokens lint size docs lock

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-16s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "stepflow needs Python 3.11 or newer: make PYTHON=python3.13 …")'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot make environments: apt-get install python3-venv"; exit 1; }
	@echo "Setting stepflow up in $(VENV); this takes a minute or two, once …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run: requirements/run.txt pyproject.toml | $(BIN)/python
	@echo "Downloading the packages that it needs …"
	@$(PIP) --require-hashes -r requirements/run.txt
	@echo "Installing stepflow …"
	@$(PIP) --no-deps -e .
	@touch $@

# A folder for PATH with `stepflow` alone: the rest of $(BIN) would hide the user's own python and pytest.
$(VENV)/path/stepflow: | $(VENV)/.run
	@mkdir -p $(@D) && ln -sf ../bin/stepflow $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.run
	$(PIP) --require-hashes -r requirements/dev.txt
	@touch $@

demo: $(VENV)/.run $(VENV)/path/stepflow ## run the main job on the scripted model: no key, no network
	@rm -rf build/demo
	@$(BIN)/stepflow demo --keep build/demo

test: $(VENV)/.dev ## the fast tests, in parallel
	$(BIN)/python -m pytest -n 3

BASE ?= main
test-changed: $(VENV)/.dev ## the tests nearest to what differs from BASE=main, and those that quote a text it removes
	$(BIN)/python -m tests.changed $(BASE)

# A sample of the slow tests, in which each file and each table has its part; STEPFLOW_FULL=1 runs all, as CI does once a week.
SLOW := $(if $(STEPFLOW_FULL),,and not weekly)

PROPERTIES ?= $(if $(STEPFLOW_FULL),2000,100)
whole: $(VENV)/.dev ## slow tests that need no Docker: properties on 100 examples (PROPERTIES=…), whole runs, hostile tools, times; and branch coverage of the engine
	$(BIN)/python -m pytest -n 2 tests/engine tests/domain --cov
	STEPFLOW_PROPERTIES=$(PROPERTIES) $(BIN)/python -m pytest -n 3 -m "properties or whole and not alone $(SLOW)"
	$(BIN)/python -m pytest -m "alone $(SLOW)"

$(VENV)/.browser: requirements/browser.txt $(VENV)/.dev
	$(PIP) --require-hashes -r requirements/browser.txt
	@touch $@

browser: $(VENV)/.browser ## report.html and the job summary in a real Chromium; pictures of them go to build/browser
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m browser tests/browser

IMAGE ?= stepflow-action
REQUIREMENTS ?= requirements/run.txt
image: ## build the image under the name IMAGE=…, with the packages of REQUIREMENTS=…
	docker build --quiet --build-arg REQUIREMENTS=$(REQUIREMENTS) --tag $(IMAGE) .

e2e: $(VENV)/.dev ## the image in a real Docker engine, driven by a workflow; and what installs packages from npm's and PyPI's registries
	STEPFLOW_NPM_TESTS=1 $(BIN)/python -m pytest -n 3 --dist loadgroup -m "(npm or e2e) $(SLOW)" tests/e2e tests/real_agents tests/report tests/telemetry

e2e-security: $(VENV)/.dev ## attacks on the image in a real Docker engine, with each layer of the sandbox off in turn
	$(BIN)/python -m pytest -n 3 --dist loadgroup -m "e2e_security $(SLOW)" tests/e2e/security

.venv-bench/.done: requirements/bench.txt
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bench.txt
	@touch $@

RUNS ?= 7
bench: $(VENV)/.run .venv-bench/.done ## time, memory and billed tokens beside the peers; writes bench/README.md (RUNS=7, about 8 minutes)
	$(BIN)/python -m bench $(RUNS)

bench-tokens: $(VENV)/.run .venv-bench/.done ## only what is billed, which no clock changes; writes that part of bench/README.md
	$(BIN)/python -m bench 0

lint: $(VENV)/.dev ## every static check
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy && $(BIN)/mypy examples/run_agent.py && $(BIN)/mypy release
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.docs.references
	$(BIN)/codespell *.md docs stepflow action.yml release bench examples .agent .github Makefile Dockerfile entrypoint.py
	$(BIN)/proselint check --config .proselintrc.json *.md bench/README.md docs/*.md docs/how-to/*.md docs/spec/*.md stepflow/definition/rules.md
	$(BIN)/hadolint Dockerfile
	$(BIN)/actionlint .github/workflows/*.yml tests/e2e/*.yml
	$(BIN)/zizmor --offline --quiet .
	$(BIN)/zizmor --offline --quiet --persona pedantic action.yml .github/workflows/*.yml .github/dependabot.yml stepflow/cli/templates/stepflow.yml tests/e2e/*.yml tests/e2e/stand_ins

size: $(BIN)/python ## code lines and files of each room
	@$(BIN)/python -m release.size stepflow tests bench

docs: $(VENV)/.dev ## the documents' tables, the reference page and the README's pictures, made again
	$(BIN)/python -m tests.docs.tables --write
	$(BIN)/python -m tests.docs.reference --write
	$(BIN)/python -m tests.docs.picture
	$(BIN)/python -m tests.docs.story
	$(BIN)/python -m tests.docs.pull_request

LOCK := $(BIN)/uv pip compile --generate-hashes --universal --no-strip-extras --quiet --custom-compile-command 'make lock'
lock: $(VENV)/.dev ## write the hash-locked requirements again
	$(LOCK) pyproject.toml --extra mcp --extra otel -o requirements/run.txt
	$(LOCK) pyproject.toml --extra mcp --extra otel --extra dev -o requirements/dev.txt
	$(LOCK) pyproject.toml --extra mcp --extra otel --extra bedrock --constraint requirements/dev.txt -o requirements/bedrock.txt
	$(LOCK) pyproject.toml --extra mcp --extra otel --extra vertex --constraint requirements/dev.txt -o requirements/vertex.txt
	$(LOCK) --group browser --constraint requirements/dev.txt -o requirements/browser.txt
	$(LOCK) --group bench -o requirements/bench.txt
	$(LOCK) --group image -o requirements/image.txt
