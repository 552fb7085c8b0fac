# Everything that a person or CI runs. Each target is explained by the text after its `##`; `make` alone prints them.
# A fresh machine needs Python >= 3.11 and make, nothing else: the targets below create .venv and install into it what they need, once.

.DEFAULT_GOAL := help

# The first Python on the path that is new enough; `make PYTHON=/path/to/python3.12 …` decides otherwise.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
    if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
STAMPS := $(VENV)/stamps

.PHONY: help
help: ## print this list
	@grep -hE '^[a-z][a-z-]*:.*##' $(MAKEFILE_LIST) | while IFS= read -r line; do \
	    printf '  make %-10s %s\n' "$${line%%:*}" "$${line##*## }"; done

.PHONY: install
install: $(STAMPS)/core ## create .venv and install the compiler into it (as .venv/bin/pipelinkc)

.PHONY: demo
demo: cuda ## compile and run the edge pipeline on a photograph: out/edges.png
	@$(BIN)/python examples/demo.py

.PHONY: test
test: $(STAMPS)/dev nvrtc ## run all tests (TEST_ARGS="tests/unit -k std" for some)
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest $(TEST_WORKERS) $(TEST_ARGS)

.PHONY: lint
lint: $(STAMPS)/dev ## style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/python .ci/check_layers.py
	$(BIN)/mypy

.PHONY: format
format: $(STAMPS)/dev ## sort imports, repair what ruff can, format the .plir files
	$(BIN)/ruff check --fix .
	$(BIN)/pipelinkc fmt examples pipelink_ir/std/*.plir

.PHONY: mutation
mutation: $(STAMPS)/dev ## seed faults by hand, one at a time, and see that the tests find each (half an hour; FAULTS="words of their names" for some)
	$(BIN)/python tests/mutation/seeded.py $(FAULTS)

.PHONY: plans
plans: $(STAMPS)/dev ## change the plans of 500 random graphs in every way, and see that the proof refuses what does harm, and nothing else
	$(BIN)/python -m pytest tests/plans --plan-graphs=500

.PHONY: docs
docs: $(STAMPS)/docs ## write the generated pages of docs/ anew and render all of them to out/docs
	@$(BIN)/python docs/build.py

.PHONY: bench
bench: cuda ## measure start-up, edge_gamma, binding, passes, memory, and on a GPU its rows; results in benchmarks/results (BENCH_ARGS="gpu --peers all")
	@$(BIN)/python benchmarks/all.py $(BENCH_ARGS)

.PHONY: clean
clean: ## remove .venv and everything that is generated
	rm -rf $(VENV) out build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis pipelinkc-crash.plir
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Two workers pay from about eight seconds of tests on. Each begins with a stretch of its own and takes from others when it is done, so that what the tests of a
# file share is made once.
TEST_WORKERS ?= -n auto --maxprocesses 8 --dist worksteal
TEST_ARGS ?=
BENCH_ARGS ?=

# ------------------------------------------------------------------------------------------------------------------- set-up
# A stamp says what is installed; it is made anew when pyproject.toml changes.

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then \
	    echo "PipeLink IR needs Python 3.11 or newer, and none is on the path. Install one, or name it: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	    exit 1; fi
	@if ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then echo "$(PYTHON) is older than Python 3.11, which PipeLink IR needs." >&2; exit 1; fi
	@if ! $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "$(PYTHON) cannot create virtual environments: 'venv' or 'ensurepip' is missing. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; fi
	@echo "creating $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(STAMPS)/core: pyproject.toml | $(BIN)/python
	@mkdir -p $(STAMPS)
	@echo "installing PipeLink IR into $(VENV)" >&2
	@$(PIP) install --editable .
	@touch $@

$(STAMPS)/dev: pyproject.toml | $(BIN)/python
	@mkdir -p $(STAMPS)
	@echo "installing PipeLink IR and what its tests need into $(VENV)" >&2
	@$(PIP) install --editable '.[dev]'
	@touch $(STAMPS)/core $@

$(STAMPS)/docs: $(STAMPS)/core
	@$(PIP) install --editable '.[docs]'
	@touch $@

# The CUDA extra that the driver allows: 580 is the first driver for CUDA 13, 525 the first for CUDA 12. Nothing without a GPU, and
# wheels that cannot be had are no reason not to run on the CPU.
.PHONY: cuda
cuda: $(STAMPS)/core
	@driver=$$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 | cut -d. -f1); \
	case "$$driver" in ''|*[!0-9]*) exit 0;; esac; \
	if [ "$$driver" -ge 580 ]; then extra=cuda13; elif [ "$$driver" -ge 525 ]; then extra=cuda12; \
	else echo "the NVIDIA driver $$driver is older than 525: going on without CUDA" >&2; exit 0; fi; \
	if [ $(STAMPS)/$$extra -nt pyproject.toml ]; then exit 0; fi; \
	echo "installing the extra $$extra for the GPU of this machine (driver $$driver)" >&2; \
	if $(PIP) install --editable ".[$$extra]"; then touch $(STAMPS)/$$extra; \
	else echo "the extra $$extra could not be installed: going on without CUDA" >&2; fi

# The compiler of CUDA, which needs no GPU: with it the tests compile every kernel for every architecture (130 MB to load, 8 s). Where its wheels cannot be
# had, those tests are skipped.
.PHONY: nvrtc
nvrtc: cuda
	@if [ -e $(STAMPS)/cuda13 ] || [ -e $(STAMPS)/cuda12 ] || [ $(STAMPS)/nvrtc -nt pyproject.toml ]; then exit 0; fi; \
	echo "installing the extra cuda13, for tests that compile CUDA" >&2; \
	$(PIP) install --editable ".[cuda13]" || echo "the extra cuda13 could not be installed: going on without it" >&2; \
	touch $(STAMPS)/nvrtc
