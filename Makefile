# Everything runs in .venv, which the first target installs from pinned versions.
PYTHON ?= python3
BIN := .venv/bin
BACKENDS := tensorflow jax torch
INSTALLED := .venv/installed

.PHONY: example test lint format clean

example: $(INSTALLED)
	$(BIN)/python examples/pretrain_masked_lm.py

test: $(INSTALLED) lint
	@for backend in $(BACKENDS); do \
		echo "== $$backend =="; \
		KERAS_BACKEND=$$backend $(BIN)/python -m pytest -n auto --ignore tests/cross_backend || exit 1; \
	done
	@echo "== the backends against each other =="
	$(BIN)/python -m pytest tests/cross_backend

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --constraint constraints.txt --editable ".[dev]"
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .ruff_cache
