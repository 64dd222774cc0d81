# Millstream's commands. `make` alone prints the tour.

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.millstream-setup
ARGS  ?=

.DEFAULT_GOAL := tour
.PHONY: tour setup demo test test-slow test-all check lint type fmt bench bench-table clean

tour:
	@echo "Millstream: a stream processor in Python, on Spark."
	@echo
	@echo "New here?   make setup    prepares .venv and checks Java; once, a few minutes"
	@echo "            make demo     an auction house, live in your terminal; Ctrl-C ends it"
	@echo
	@echo "  make setup      prepare .venv and Java; quick when nothing changed"
	@echo "  make demo       run the demo                       (ARGS=\"--for 20s\")"
	@echo "  make test       all tests but the slow ones        (ARGS=\"-k window\")"
	@echo "  make check      what CI runs: format, lint, types, test"
	@echo "  make test-slow  one shard of the slow tests        (SHARD=3/40)"
	@echo "  make test-all   every test, slow ones too; hours"
	@echo "  make bench      measure against the peers          (ARGS=\"--help\")"
	@echo "  make bench-table   write the README's table from bench/results"
	@echo "  make fmt        format the code and fix what ruff can fix"
	@echo "  make lint       format and lint check only"
	@echo "  make type       mypy only"
	@echo "  make clean      remove caches and builds; keeps .venv and homes"
	@echo
	@echo "Read next: README.md, docs/glossary.md, CONTRIBUTING.md"

setup: $(STAMP)
	@echo "setup: $(VENV) is ready"

# Runs again only when the dependencies or the script changed, or .venv is gone.
$(STAMP): pyproject.toml scripts/setup.sh
	@PYTHON="$(PYTHON)" bash scripts/setup.sh
	@touch $@

demo: $(STAMP)
	@$(BIN)/millstream demo $(ARGS)

test: $(STAMP)
	@bash scripts/test.sh $(ARGS)

# One after the other, also under make -j: the cheap checks run first.
check: $(STAMP)
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory type
	@$(MAKE) --no-print-directory test

test-slow: $(STAMP)
	@bash scripts/test-slow.sh $(SHARD)

test-all: $(STAMP)
	@echo "every test, the slow ones too: this takes hours on two cores (200 k crashes of the log alone 40 minutes); the slowest are listed at the end"
	$(BIN)/python -m pytest --durations=15 $(ARGS)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

type: $(STAMP)
	$(BIN)/mypy

fmt: $(STAMP)
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

bench-table: $(STAMP)
	$(BIN)/python -m bench.table

clean:
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log
	find src tests bench examples -name __pycache__ -type d -not -path "bench/.envs/*" -prune -exec rm -rf {} + 2>/dev/null || true
