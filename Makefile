# `make quickstart` installs into .venv and runs the main job; `make test` installs the test extra and checks everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: quickstart test lint types install aot

quickstart: install
	$(BIN)/python -m dfc.launch --config=configs/quickstart.py

test: $(VENV)/.test lint types
	$(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy

install: $(VENV)/.install

$(VENV)/.install: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(VENV)/.test: $(VENV)/.install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $@

# Compiles small programs for described TPUs and NVIDIA GPUs and holds their memory; wheels only, no such device needed.
aot:
	$(PYTHON) -m venv .venv-aot
	.venv-aot/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[aot,test]'
	.venv-aot/bin/python -m pytest -q tests/test_fit_described.py
