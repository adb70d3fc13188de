# People, hooks and CI all use these targets. `make` lists them.

.DEFAULT_GOAL := help
.PHONY: help demo test test-differential test-seeds fuzz coverage soak test-api test-spark test-faults test-cluster test-kafka test-postgres test-lake test-wheel bench bench-lookups bench-service bench-short bench-plots reproduce reproduce-short docs docs-serve check audit format notebook venv java clean

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH := .venv-bench
AUDIT := .venv-audit
DOCS := .venv-docs
ARGS ?=
SEEDS ?= 10
PAPERS := prodding timegram ordered-sharing promising promising-engine
# One worker runs the tests on Spark and waits for the JVM now and then, so there is one more than there are cores.
WORKERS := -n 3 --dist loadgroup
# Benchmarks and the papers' experiments are no part of the package: bench-short and reproduce-short test them.
PACKAGE_TESTS := -m "not comparison and not cluster and not browser and not kafka and not postgres and not lake and not wheel and not faults" \
	$(addprefix --ignore=tests/, benchmarks reproduce cluster browser kafka postgres lake wheel faults)

# Tests start dozens of processes. Without cached bytecode, each compiles every module that it imports.
unexport PYTHONDONTWRITEBYTECODE

help: ## list the targets
	@echo "usage: make TARGET [ARGS=\"...\"]"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: java $(READY) ## a real stream of flights, dozens of queries and the dashboard (ARGS="--keep-running", "--once")
	@$(BIN)/transom demo $(ARGS)

test: java $(READY) ## the package's tests, without the comparisons with Spark and those for the cluster, the browser and faults (ARGS="-k slack" for some of them)
	@$(BIN)/python -m pytest $(PACKAGE_TESTS) $(WORKERS) $(ARGS)

coverage: java $(READY) ## the same tests, and which lines of transom they ran (the driver's process, not Spark's workers)
	@$(BIN)/python -m pytest $(PACKAGE_TESTS) $(WORKERS) --cov=transom --cov-report=term:skip-covered $(ARGS)

test-differential: java $(READY) ## all random cases against the oracle (`make test` draws a third of them)
	@TRANSOM_CASES=100 $(BIN)/python -m pytest -m "not comparison and not cluster" $(WORKERS) tests/differential tests/kernel/test_shards.py $(ARGS)

test-seeds: java $(READY) ## the random tests of the targets test-differential and test-spark with SEEDS=10 new seeds, ten minutes each
	@for seed in $$(shuf -i 1-4294967295 -n $(SEEDS)); do \
		TRANSOM_SEED=$$seed $(MAKE) test-differential test-spark || exit; \
	done

fuzz: java $(READY) ## a million mutated SQL texts through parse, bind and plan, about half an hour
	@TRANSOM_FUZZ_TEXTS=1000000 $(BIN)/python -m pytest tests/sql/test_fuzz.py $(ARGS)

soak: $(READY) ## 200 queries that join and leave for twenty minutes: nothing may grow (ARGS="--minutes 2 --backend spark")
	@$(BIN)/python -m benchmarks.soak $(ARGS)

test-api: java $(READY) ## many generated requests against the API's description, a few minutes
	@TRANSOM_API_EXAMPLES=200 $(BIN)/python -m pytest tests/server/test_description.py $(ARGS)

test-browser: java $(READY) ## the dashboard in a real Chromium, which is installed if it is missing
	@scripts/install-browser
	@$(BIN)/python -m pytest tests/browser $(ARGS)

test-spark: java $(READY) ## files, rows of the driver and scalars, compared with Spark value by value
	@$(BIN)/python -m pytest -m "comparison and not faults" $(addprefix --ignore=tests/, benchmarks reproduce cluster browser kafka postgres lake wheel faults) $(ARGS)

test-faults: java $(READY) ## hundreds of killed processes, damaged checkpoints, full disks, lost workers
	@$(BIN)/python -m pytest -m "faults and not cluster" $(WORKERS) $(ARGS)

test-cluster: java $(READY) ## the differential tests on a real standalone cluster on loopback
	@$(BIN)/python -m pytest -m cluster $(ARGS)

test-kafka: java $(READY) ## streams from a real broker on loopback, which Maven gets from Maven Central by coordinates
	@$(BIN)/python -m pytest tests/kafka $(ARGS)

test-postgres: java $(READY) ## results upserted into a real PostgreSQL server on loopback (Debian's package postgresql)
	@$(BIN)/python -m pytest tests/postgres $(ARGS)

test-lake: java $(READY) ## streams, tables and results in tables of Delta Lake, on both backends; a minute
	@$(BIN)/python -m pytest tests/lake $(ARGS)

test-wheel: java $(READY) ## builds the wheel, installs it into fresh environments and runs the README's first example there
	@$(BIN)/python -m pytest tests/wheel $(ARGS)

bench: java $(BENCH)/.ready ## every workload against every bar, about an hour; CSV in benchmarks/results
	@$(BENCH)/bin/python -m benchmarks.run $(ARGS)
	@$(BENCH)/bin/python -m benchmarks.analysis

bench-lookups: java $(BENCH)/.ready ## what structures cost, and lookups over a running engine, three minutes
	@$(BENCH)/bin/python -m benchmarks.structures
	@$(BENCH)/bin/python -m benchmarks.lookups $(ARGS)

bench-service: java $(BENCH)/.ready ## a server with 1,000 queries, batches with 200 readers and without, five minutes
	@$(BENCH)/bin/python -m benchmarks.service --out benchmarks/results $(ARGS)

bench-short: java $(BENCH)/.ready ## a small run of the same, and its tests
	@$(BENCH)/bin/python -m pytest -q tests/benchmarks
	@$(BENCH)/bin/python -m benchmarks.run --short --out $(BENCH)/results $(ARGS)
	@$(BENCH)/bin/python -m benchmarks.lookups --short --out $(BENCH)/results
	@$(BENCH)/bin/python -m benchmarks.service --short --out $(BENCH)/results
	@$(BENCH)/bin/python -m benchmarks.summaries --rows 50000 --batch 10000 --rounds 1
	@$(BENCH)/bin/python -m benchmarks.promising --tuples 6000 --batch 1000 --rounds 1 --selections 20

bench-plots: $(BENCH)/.ready ## plots of the last run of bench, into docs/benchmarks
	@$(BENCH)/bin/python -m benchmarks.plot $(ARGS)

reproduce: $(BENCH)/.ready ## the papers' experiments, written to reproduced/ (ARGS="--data DIR --seeds 10")
	@for paper in $(PAPERS); do $(BENCH)/bin/python -m reproduce $$paper $(ARGS) || exit; done

reproduce-short: $(BENCH)/.ready ## the papers' experiments on short streams, and their tests
	@$(BENCH)/bin/python -m pytest -q -n 2 tests/reproduce
	@for paper in $(PAPERS); do \
		$(BENCH)/bin/python -m reproduce $$paper --short --out $(BENCH)/reproduced $(ARGS) || exit; \
	done

# --quiet would hide warnings from --strict as well.
docs: $(DOCS)/.ready ## the documentation as a site, in site/; a broken link or anchor fails
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict $(ARGS)

docs-serve: $(DOCS)/.ready ## the site on this machine, built again when a page changes (ARGS="--dev-addr 127.0.0.1:8800")
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve --dev-addr 127.0.0.1:8711 $(ARGS)

check: $(READY) ## lint, format, types and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: ## known vulnerabilities of all pinned packages; says so if the advisories can't be read
	@scripts/audit $(AUDIT) requirements.lock requirements-dev.lock requirements-bench.lock requirements-docs.lock

format: $(READY) ## rewrite the code as the formatter wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

notebook: $(READY) ## execute the tutorial notebook and store its outputs
	@$(BIN)/python -m tests.notebook.execution

venv: $(READY) ## make the virtual environment from the lock, if it is missing or out of date

java:
	@scripts/check-java

# The stamp is older than the lock when the lock has changed since, and missing when a previous
# attempt broke off.
$(READY): requirements.lock requirements-dev.lock pyproject.toml scripts/make-venv
	@scripts/make-venv $(VENV) requirements-dev.lock
	@touch $@

$(BENCH)/.ready: requirements.lock requirements-dev.lock requirements-bench.lock pyproject.toml scripts/make-venv
	@scripts/make-venv $(BENCH) requirements-bench.lock
	@touch $@

$(DOCS)/.ready: requirements-docs.lock scripts/make-venv
	@scripts/make-venv $(DOCS) requirements-docs.lock
	@touch $@

clean: ## remove the virtual environment and everything generated
	rm -rf $(VENV) $(BENCH) $(AUDIT) $(DOCS) site build dist *.egg-info spark-warehouse metastore_db derby.log artifacts
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
