# make run: judge configs/ci.yaml on this machine.   make l0: every case, in five minutes.
# make test: the tests of the harness itself.        make selftest: is each seeded fault caught?
# All make .venv first. PYTHON=python3.12 picks the interpreter, ARGS="..." goes to runner.py.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
MATRIX ?= ci.yaml
ARGS ?=

.PHONY: run l0 test selftest lint clean

run: $(STAMP)
	$(BIN)/python runner.py --matrix $(MATRIX) $(ARGS)

l0: $(STAMP)
	$(BIN)/python runner.py --matrix l0.yaml $(ARGS)

test: lint
	$(BIN)/python -m pytest -n 2

selftest: $(STAMP)
	$(BIN)/python runner.py selftest $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/mypy

# Installed again only when what is to be installed has changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Python 3.10 or newer is needed: make PYTHON=/path/to/python3" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
