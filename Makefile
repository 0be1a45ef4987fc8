# All commands for users and developers. `make` alone lists them.
SHELL := bash
.DEFAULT_GOAL := help
# The oldest uv with exclude-dependencies, as required-version in pyproject.toml.
UV_OLDEST := 0.9.8
UV := $(shell printf '%s\n' $(UV_OLDEST) "$$(uv --version 2>/dev/null | cut -d' ' -f2)" | sort -CV && command -v uv || echo .tools/uv/bin/uv)
# Debian packages for tests: Redis for the live Synapse, a pooler and a loader for PostgreSQL, a browser for Airflow's UI, Prometheus for alerts and dashboards.
TEST_PACKAGES := redis-server chromium chromium-driver pgbouncer pgloader prometheus prometheus-node-exporter
PYTEST := $(UV) run --locked pytest
# Containers often disable compiled Python files. Without them, each process of a run compiles its libraries, for seconds.
unexport PYTHONDONTWRITEBYTECODE
export XDG_RUNTIME_DIR ?= $(or $(TMPDIR),/tmp)/runtime-$(shell id -u)

.PHONY: help run ui setup test test-unit test-heavy test-tools check format generate dashboards docs sample answers lock-jars sbom earlier-lake bench bench-copy bench-state bench-executors bench-visibility bench-streams bench-tap bench-page bench-homeservers bench-compression clean

##@ Use
help: ## Show this help
	@[ -t 1 ] && { on=$$'\033[36m' off=$$'\033[0m'; }; \
	awk -v on="$$on" -v off="$$off" 'BEGIN {FS = ":.*## "; printf "Usage: make %sTARGET%s\n", on, off} \
	/^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %s%-18s%s %s\n", on, $$1, off, $$2}' $(MAKEFILE_LIST)

run: setup ## Bring the lake up to date for one interval and publish it (DATE=2026-11-20 for another one)
	@$(UV) run --locked lakehouse run $${DATE:+--date "$$DATE"}

ui: setup ## Start Airflow with everything on, on 127.0.0.1 (PORT=8080); Ctrl-C stops it
	@$(UV) run --locked lakehouse ui $${PORT:+--port "$$PORT"}

setup: $(if $(findstring .tools,$(UV)),.tools/uv/bin/uv) ## Install what is missing: uv and the locked environment
	@mkdir -p -m 700 "$$XDG_RUNTIME_DIR"
	@$(UV) sync --locked --quiet

##@ Develop
test: setup test-tools ## All tests except heavy ones, against real services, in 15 minutes on 2 cores
	@# Three processes, because Spark, Airflow and servers often wait. tests/support/scheduler.py sets the order.
	@$(PYTEST) --numprocesses 3 --no-loadscope-reorder

test-unit: setup ## Unit tests, without a JVM or a server, in a minute
	@$(PYTEST) tests/unit --numprocesses 2

test-heavy: setup test-tools ## Heavy tests: soaks, kills, millions of answers, for hours
	@$(PYTEST) -m heavy --numprocesses 2 --no-loadscope-reorder

check: setup ## Check format, lint, import contracts and types, without changes
	@$(UV) run --locked ruff format --check .
	@$(UV) run --locked ruff check .
	@$(UV) run --locked lint-imports
	@$(UV) run --locked mypy

format: setup ## Format all Python, and apply the linter's fixes
	@$(UV) run --locked ruff format .
	@$(UV) run --locked ruff check --fix .

generate: setup ## Generate reference pages, pictures, excluded columns and the compose reader's grants
	@$(UV) run --locked python -m docs.generate
	@$(UV) run --locked lakehouse grants --role lakehouse_reader > docker/postgres/reader.sql
	@$(UV) run --locked python -m sample.excluded_columns

dashboards: setup ## Build the Grafana dashboards in docker/monitoring
	@$(UV) run --locked python -m docker.monitoring.dashboards

docs: setup ## Build the site of the documents in .lakehouse/docs/html; warnings and broken links are errors
	@$(UV) run --locked --group docs python -m docs.build

sample: setup test-tools ## Rebuild the shipped sample with a real Synapse
	@$(UV) run --locked python -m sample.build
	@$(MAKE) --no-print-directory answers

answers: setup ## Record a real Synapse's answers about the sample: visibility, redactions, hashes
	@$(UV) run --locked python -m tests.visibility.record
	@$(UV) run --locked python -m tests.hashes.answers
	@$(UV) run --locked python -m tests.event_loader.answers

lock-jars: setup ## Record the SHA-256 of Spark's jars from Maven Central
	@$(UV) run --locked python -m supply_chain.lock_jars

sbom: setup ## Write the bill of materials, sbom.cdx.json, from the locks
	@$(UV) run --locked python -m supply_chain.sbom $(abspath $(shell command -v $(UV)))

earlier-lake: setup ## Store a small lake of the version COMMIT, for the upgrade test
	@git worktree add --quiet --detach .lakehouse/earlier $(COMMIT)
	@cd .lakehouse/earlier; $(abspath $(UV)) run --locked python $(CURDIR)/tests/upgrade/keep.py; done=$$?; \
	git -C $(CURDIR) worktree remove --force .lakehouse/earlier; exit $$done

bench: bench-copy bench-state bench-executors bench-visibility bench-streams bench-tap bench-page bench-homeservers bench-compression ## Run all benchmarks, into docs/bench*.md (BENCH="--scale 0.1")

bench-copy: setup ## Compare copies and increments with other tools (BENCH="--scale 0.1 --rounds 3")
	@$(UV) run --locked --group bench python -m bench.copy $(BENCH)

bench-state: setup ## Resolve the state of 5 million state groups, and then of 0.1% new ones (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.state $(BENCH)

bench-executors: setup ## Resolve the same state on 1, 2 and 4 executors of one core (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.state.executors $(BENCH)

bench-visibility: setup ## Measure room state and visibility of a large homeserver (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.visibility $(BENCH)

bench-streams: setup ## Measure the task measure_streams on 100 million IDs (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.streams $(BENCH)

bench-tap: setup test-tools ## Measure throughput and delay of the replication tap
	@$(UV) run --locked python -m bench.tap

bench-page: setup test-tools ## Measure the page and the metrics of 10 million events (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.page $(BENCH)

bench-homeservers: setup test-tools ## Measure the nights of 20 small homeservers in one Airflow (BENCH="--servers 5")
	@$(UV) run --locked python -m bench.homeservers $(BENCH)

bench-compression: setup ## Compare state compression with Synapse's own compressor (BENCH="--scale 0.1")
	@$(UV) run --locked python -m bench.compression $(BENCH)

clean: ## Delete all local data, including the lake; the environment stays
	@rm -rf .lakehouse dbt/target dbt/logs .pytest_cache .mypy_cache .ruff_cache

.tools/uv/bin/uv:
	@echo "Installing uv into .tools"
	@python3 -m venv .tools/uv 2>/dev/null || { $(call apt,python3-venv) && rm -rf .tools/uv && python3 -m venv .tools/uv; }
	@.tools/uv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-uv.txt

test-tools:
	@missing=(); for package in $(TEST_PACKAGES); do dpkg -s $$package >/dev/null 2>&1 || missing+=($$package); done; \
	if [ $${#missing[@]} -gt 0 ]; then $(call apt,$${missing[*]}); fi

# Install Debian packages, as root or through sudo, or print the command.
define apt
if [ "$$(id -u)" = 0 ]; then as=; elif command -v sudo >/dev/null; then as=sudo; \
else echo "Missing Debian packages: $(1). As root run: apt-get install $(1)"; exit 1; fi; \
echo "Installing Debian packages: $(1)"; $$as apt-get update -qq && \
$$as env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null
endef
