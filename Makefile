# The environment is made on first use; everything below runs from it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two cores are the reference machine. More threads than cores make small matrix products slower.
export OMP_NUM_THREADS ?= 2
export TOKENIZERS_PARALLELISM ?= false
# Without bytecode files, every process that a test starts compiles all modules.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: test check results bench demo docs install clean

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

test: install          ## the whole suite, from a bare machine
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal $(ARGS); status=$$?; $(BIN)/python tests/helpers/browser.py; exit $$status

check: install         ## style, types, structure
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python dev/measure.py

results: install       ## tables and numbers of the documents, from docs/results
	$(BIN)/python dev/results.py $(ARGS)

demo: install          ## the main job on the text and the encoder that come with calque
	$(BIN)/calque demo --overwrite $(ARGS)

docs: $(VENV)/.docs     ## the documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)

$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

bench: install         ## the speed ratios of docs/results.md
	$(BIN)/python -m benchmarks $(or $(ARGS),all)

clean:
	rm -rf $(VENV) dist build site .pytest_cache .ruff_cache
