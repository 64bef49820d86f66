# Everything happens in .venv; the first `make up` or `make test` fills it, later ones are offline and instant.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALL := $(BIN)/uv pip install --python $(BIN)/python
COMPILE := $(BIN)/uv pip compile --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --python-version 3.11 --universal
unexport PYTHONDONTWRITEBYTECODE  # set, it makes every process compile all that it imports: 7 s for torch alone
help: ## this menu
	@awk -F ':.*## ' '/^[a-z -]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
up: .venv/up ## run Kafka, the stages, a model replica and two edges here; Ctrl-C stops
	@$(BIN)/laneway up
test: .venv/test ## all tests, with a real Kafka broker
	@$(BIN)/pytest -n 3 --dist loadgroup --no-loadscope-reorder
check: .venv/test ## lint, types, import contracts, sizes
	$(BIN)/ruff check && $(BIN)/ruff format --check && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python infra/check_sizes.py
simulate: .venv/test ## the whole pipeline on virtual time, with faults: SEED=7 runs one seed, RUNS=1000 FIRST=0 many
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --only "$(ONLY)",--runs $(or $(RUNS),1000) --first $(or $(FIRST),0))
chaos: .venv/test ## real processes with faults, and the checker: SEED=7 MINUTES=2, RUNS=12 seeds one after the other
	@$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --minutes $(or $(MINUTES),2) --runs $(or $(RUNS),1)
bench-ops bench-quality bench-path bench-faults bench-supervisor bench-leaving bench-intake bench-store bench-serving: .venv/test ## measurements, each on what it needs
	@$(BIN)/python -m tests.benchmarks.$(@:bench-%=%)
down reset: .venv/up ## stop what `make up` runs; delete records, conversations and keys: models and jars stay
	@$(BIN)/laneway $@
docs: .venv/test ## write the README's tables and diagram anew from the code
	@$(BIN)/python -m infra.docs
schemas: .venv/test ## add a golden Avro schema for each record that has changed
	@$(BIN)/python -m schemas.avro_schema
lock: .venv/uv ## write the pinned versions and hashes anew from pyproject.toml
	$(COMPILE) --extra edge --extra engine --extra local --extra cassandra pyproject.toml -o requirements.lock && echo 'uv==0.13.9' | $(COMPILE) - -o requirements-uv.lock
	$(COMPILE) --extra edge --extra engine --extra local --extra cassandra --extra trace --extra test -c requirements.lock pyproject.toml -o requirements-dev.lock
clean: ## delete .venv and caches; .laneway stays
	rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
.venv/uv: requirements-uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { echo "Laneway needs Python 3.11, and $(PYTHON) is another: make PYTHON=/path/to/python3.11 ..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv && $(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $< && touch $@
.venv/up: requirements.lock
.venv/test: requirements-dev.lock
.venv/up .venv/test: pyproject.toml .venv/uv
	@echo "Installing into .venv; the first time PyTorch alone is 4.6 GB on disk (Linux)."
	@$(INSTALL) --require-hashes -r $(filter %.lock,$^) && $(INSTALL) --no-deps --no-build-isolation -e . && touch $@
.PHONY: help up test check simulate chaos bench-path down reset docs schemas lock clean
