# Everything runs in .venv. The first target installs what it needs there, from pinned versions.
PYTHON ?= python3
BIN := .venv/bin
BACKENDS := tensorflow jax torch
BACKEND := $(or $(KERAS_BACKEND),tensorflow)
PIP_INSTALL := $(BIN)/python -m pip install --constraint constraints.txt --editable

.PHONY: example test test-paper clients lint format docs docs-serve notebooks clean

example: .venv/installed-$(BACKEND)
	KERAS_BACKEND=$(BACKEND) $(BIN)/python examples/pretrain.py

test: .venv/installed-dev lint
	@for backend in $(BACKENDS); do \
		echo "== $$backend =="; \
		KERAS_BACKEND=$$backend $(BIN)/python -m pytest -n auto || exit 1; \
	done

# The tests of the experiments and of the benchmarks. CI runs them weekly and before a release.
test-paper: .venv/installed-dev
	@for backend in $(BACKENDS); do \
		echo "== $$backend =="; \
		KERAS_BACKEND=$$backend $(BIN)/python -m pytest -n auto examples/paper/tests tests/benchmarks || exit 1; \
	done

# The programs of others that read our folders, for tests/models/test_hugging_face_programs.py.
clients: .clients/installed

.clients/installed: tests/clients/requirements.txt
	$(PYTHON) -m venv .clients
	.clients/bin/python -m pip install --requirement tests/clients/requirements.txt
	npm install --prefix .clients --ignore-scripts --no-save @huggingface/transformers@4.3.2
	touch $@

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy keras_diet

format: .venv/installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site, in site/. A warning is an error.
docs: .venv/installed-dev
	$(BIN)/mkdocs build

docs-serve: .venv/installed-dev
	$(BIN)/mkdocs serve

# Run the notebooks and keep their outputs.
notebooks: .venv/installed-dev
	KERAS_BACKEND=jax $(BIN)/python docs/run_notebooks.py

# One backend and what the examples import. TensorFlow comes with every backend, because keras-nlp
# requires tensorflow-text (except on Windows), and tensorflow-text requires tensorflow.
.venv/installed-%: pyproject.toml constraints.txt
	$(if $(filter $*,$(BACKENDS)),,$(error KERAS_BACKEND must be one of: $(BACKENDS). Received: $*))
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) ".[$*,examples]"
	touch $@

# All backends and the tools. The examples need nothing else.
.venv/installed-dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP_INSTALL) ".[dev]"
	touch $@ $(BACKENDS:%=.venv/installed-%)

clean:
	rm -rf .venv build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache
