.DEFAULT_GOAL := help
.PHONY: help demo test check soak clean

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
DEMO := demo-report
TORCH := torch==2.13.0

help:  ## Show what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/core.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --editable '.[dev]'
	@touch $@

demo: $(VENV)/core.stamp  ## Analyse the shipped traces, simulate a layer, and say where the report is
	@$(BIN)/python examples/demo.py $(DEMO)/index.html

test: check  ## Run all that guards us: style, types, floors, tests, examples (no GPU needed)
	$(BIN)/pytest -m "not gpu and not soak"

check: $(VENV)/dev.stamp  ## Style, types and floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(VENV)/dev.stamp  ## What takes long: fuzzing, thousands of operations
	$(PIP) --editable '.[fuzz]' || echo "atheris cannot be installed here: its test will be skipped"
	$(BIN)/pytest -m soak --timeout 3600

clean:  ## Remove everything that was made
	rm -rf $(VENV) $(DEMO) dist build .mypy_cache .ruff_cache .hypothesis
