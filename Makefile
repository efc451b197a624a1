# The commands of the project; `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help up demo migrate test check test-shards test-installation test-crash test-cluster test-reliability test-failover test-mysql test-galera test-security test-monitoring test-templates interop fuzz bench bench-all compare sbom lock clean services

VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
          --no-emit-find-links --python-version 3.11 $(if $(UPGRADE),--upgrade)

LOCKED := requirements.lock requirements-s3.lock requirements-dev.lock requirements-templates.lock requirements-deploy.lock requirements-bench.lock

# Kills that take long: with the crash test, not in the suite of every change.
KILLS  := tests/system/test_group_kills.py tests/system/test_media_kills.py tests/system/test_key_rotation.py \
          tests/handset/test_group_terminal.py::test_robots_killed_while_a_group_talks_read_each_message_once

# Several Coreapps with several shards, and what else takes long of several processes.
SHARDS := tests/system/test_shards.py tests/system/test_planned_stops.py tests/system/test_traces.py tests/coreapp/shard/test_layout_change.py \
          tests/coreapp/groups/test_joins.py
# `tidings up` and other commands as their users run them, against whole installations: killed, interrupted, restored.
UP     := tests/cli/test_installation.py tests/cli/test_template.py tests/cli/test_webhook_secret.py tests/system/test_lost_sessions.py
# Real MySQL in the place of MariaDB, each of these versions; what runs on it. One at a time: `make test-mysql MYSQL=9 MYSQL_SUITES=tests/crash`.
MYSQL := 8 9
MYSQL_SUITES := tests/storage tests/coreapp tests/network tests/crash
# Tests with generated input, which `make test` runs with a fifth of it.
FUZZ  := tests/webapp/test_fuzz.py tests/webapp/test_fuzz_administration.py tests/webapp/test_media.py
# The database as others leave it: with the test of its fail-over.
AWAY   := tests/storage/test_failover.py

# What `make bench-all` measures, in this order.
BENCHMARKS := system seed000 seed001 seed002 seed003 seed004 overload drift memory shards peers

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.runtime  ## start everything and stay until Ctrl-C
	@exec $(BIN)/tidings up

demo: $(VENV)/.runtime  ## send one message through a whole system of its own and show what happens
	@exec $(BIN)/tidings demo

migrate: $(VENV)/.runtime  ## bring the tables of the database to this version
	@exec $(BIN)/tidings migrate

test: services  ## all tests but the long ones (under 15 minutes)
	@exec $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations=10 $(KILLS:%=--deselect=%) $(SHARDS:%=--ignore=%) $(AWAY:%=--ignore=%) $(UP:%=--ignore=%) --ignore=tests/fuzz/test_schemathesis.py --ignore=tests/cluster --ignore=tests/crash --ignore=tests/reliability --ignore=tests/galera --ignore=tests/failover --ignore=tests/monitoring --ignore=tests/templates --ignore=tests/interop --ignore=tests/s3 --ignore=tests/upgrade -o faulthandler_timeout=300

check: $(VENV)/.templates build/deploy/.installed build/bench/.installed  ## style, types, imports, licences, known vulnerabilities
	@.ci/check
	@$(BIN)/python .ci/supply_chain.py licences --environment build/deploy --environment build/bench $(LOCKED)
	@$(BIN)/python .ci/supply_chain.py audit $(LOCKED)

test-crash: services  ## kill every process under load and reconcile the ledgers
	@exec $(BIN)/python -m pytest -s tests/crash $(KILLS)

test-reliability: services  ## cut the power, set clocks, take descriptors, memory and the network away (root; 15 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/reliability

test-shards: services  ## four shards on two Coreapps: groups across them, joins, hand-over, planned stops, a kill; traces (6 minutes)
	@exec $(BIN)/python -m pytest -s $(SHARDS)

test-installation: services  ## `tidings up` killed, interrupted and on other addresses; `tidings demo`; templates (3 minutes)
	@exec $(BIN)/python -m pytest -n 2 $(UP)

test-failover: services  ## the database moves to its replica; half a minute without it, Redis, the network, under load (12 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/failover $(AWAY)

test-cluster: services  ## several nodes of the network over Redis, as processes that die; its tests on two nodes (20 minutes)
	@$(BIN)/python -m pytest -s tests/cluster
	@exec $(BIN)/python -m pytest -n 2 --dist loadfile tests/network --nodes 2 -o faulthandler_timeout=300

.PHONY: test-upgrade
test-upgrade: services  ## replace the processes of each supported earlier revision under load, and go back (needs the git history; 15 minutes)
	@$(BIN)/python -m pytest --long tests/storage/test_migrations.py
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=900 tests/upgrade

test-mysql: services  ## storage, Coreapp, network and crash suites on MySQL 8.0 and 9 (installs Maven; an hour; MYSQL=8 for one)
	@for version in $(MYSQL); do TIDINGS_TEST_SERVER=mysql$$version $(BIN)/python -m harness.database_server || exit 1; done
	@for version in $(MYSQL); do for suite in $(MYSQL_SUITES); do \
		TIDINGS_TEST_SERVER=mysql$$version $(BIN)/python -m pytest -k "not sqlite" -o faulthandler_timeout=600 $$suite || exit 1; \
	done; done

test-galera: services  ## a cluster of three nodes: two owners, load, a node killed, a node cut off (5 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/galera

test-security: services  ## attack real processes, at length; figures of memory, CPU and delay
	@exec $(BIN)/python -m pytest -s --long -o faulthandler_timeout=300 tests/security

test-monitoring: services  ## ask every query of dashboards and alerts of a real Prometheus (PICTURE=file draws the panels)
	@exec env PICTURE=$(PICTURE) $(BIN)/python -m pytest tests/monitoring

.PHONY: test-storage
test-storage: services  ## media and blobs in buckets of a real S3 server, which is built once (needs Go; 5 minutes)
	@$(BIN)/python -m harness.s3_server
	@exec $(BIN)/python -m pytest -o faulthandler_timeout=300 tests/s3

.PHONY: test-deploy
test-deploy: $(VENV)/.dev build/deploy/.installed  ## build the image, bring up each compose file with podman (root; 15 minutes)
	@exec $(BIN)/python -m tests.deploy

test-templates: $(VENV)/.templates  ## lint the templates for AWS, Kubernetes and systemd, and make stacks of them in moto
	@exec $(BIN)/python -m pytest tests/templates

interop: $(VENV)/.dev  ## converse with devices of official Signal releases (needs Node 20 and npm)
	@npm ci --silent --ignore-scripts --prefix tests/interop
	@exec $(BIN)/python -m pytest -rs tests/interop

fuzz: services  ## try every operation of /openapi.json, for a minute and for ten; the report lands in build/fuzz
	@$(BIN)/python -m pytest --long $(FUZZ)
	@$(BIN)/python -m pytest tests/fuzz/test_schemathesis.py
	@exec $(BIN)/python -m tests.fuzz

bench-all: $(BENCHMARKS:%=bench-%)  ## measure everything, one after the other; results land in benchmarks/results

bench: bench-system  ## measure the whole system; `make bench-NAME ARGS=--quick`: benchmarks/README.md has the names

bench-seed000: build/bench/.installed

bench-%: services
	@exec $(BIN)/python -m benchmarks.$* $(ARGS)

compare: services  ## measure this tree against an earlier one (BASE=revision)
	@exec $(BIN)/python -m benchmarks.compare $(BASE)

sbom: $(VENV)/.dev  ## write the bill of materials (CycloneDX) of what the locks install: build/sbom.cdx.json
	@$(BIN)/python .ci/supply_chain.py sbom build/sbom.cdx.json

lock: $(VENV)/.dev  ## pin the dependencies of pyproject.toml (UPGRADE=1 takes newer ones)
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --output-file requirements.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra s3 --constraint requirements.lock \
		--output-file requirements-s3.lock >/dev/null
	@$(LOCK) --group pyproject.toml:deploy --output-file requirements-deploy.lock >/dev/null
	@$(LOCK) --group pyproject.toml:bench --output-file requirements-bench.lock >/dev/null
	@$(LOCK) --group pyproject.toml:peers --output-file benchmarks/peers/requirements.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra dev --extra templates --constraint requirements-dev.lock \
		--output-file requirements-templates.lock >/dev/null
	@echo "wrote requirements.lock and those of s3, dev, deploy, bench, peers and templates"

clean:  ## remove the environment and every cache; the data directory stays
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment: made once, installed again only when what it was made from has changed.

$(VENV)/bin/python:
	@.ci/make-venv $(VENV)

$(VENV)/.runtime: pyproject.toml requirements.lock | $(VENV)/bin/python
	@.ci/install $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock requirements-dev.lock | $(VENV)/bin/python
	@.ci/install $(VENV) requirements-dev.lock
	@touch $@ $(VENV)/.runtime

# Programs for `make test-deploy`, apart from what is ours.
build/deploy/.installed: requirements-deploy.lock
	@mkdir -p build
	@.ci/make-venv build/deploy
	@build/deploy/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-deploy.lock
	@touch $@

# Locust, apart from what is ours.
build/bench/.installed: requirements-bench.lock
	@mkdir -p build
	@.ci/make-venv build/bench
	@build/bench/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-bench.lock
	@touch $@

# Much that only the tests of templates need; the rest is as in the lock of the others.
$(VENV)/.templates: $(VENV)/.dev requirements-templates.lock
	@.ci/install $(VENV) requirements-templates.lock
	@touch $@

# The servers that tests start for themselves: installed before they begin, not by several of them at once.
services: $(VENV)/.dev
	@$(BIN)/python -m harness.packages
