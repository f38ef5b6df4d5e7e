# Everything in its own .venv; nothing else is needed than make and Python 3.11 or later.
#
#   make train            set up if needed, then train on the wiki (make train ARGS="--algo grpo --seed 1")
#   make test             set up if needed, then run the tests (make test ARGS="-k wiki")
#   make test-runs        those that play and train whole runs: stopping, resuming, workers, judges, comparisons
#   make test-adapters    environments of other packages, on the real packages
#   make test-walls       attacks on the sandboxes of this machine, and what a killed one leaves
#   make check            style, types and import directions
#   make format           let ruff write the style

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: install train test test-runs test-adapters test-walls check format clean
.DELETE_ON_ERROR:

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or later is needed: make PYTHON=python3.11 install")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install torch==2.13.0
	$(BIN)/python -m pip install -e '.[dev,babyai,geo,math,mcp,reasoning-gym,textworld-express,docker,wikipedia,zim]'
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .templates trl==1.16.0  # its chat templates, for tests
	@touch $@

train: $(INSTALLED)
	$(BIN)/python runners/train.py --env wiki --algo selfac $(ARGS)

test: $(INSTALLED)
	$(PYTEST) $(ARGS)

test-runs: $(INSTALLED)
	$(PYTEST) -m runs $(ARGS)

test-adapters: $(INSTALLED)
	$(PYTEST) -m 'adapters and not runs' $(ARGS)

test-walls: $(INSTALLED)
	$(PYTEST) -m 'walls and not docker' $(ARGS)

check: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/lint-imports

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
