# Commands of the project; `make` without a target lists them.

.DEFAULT_GOAL := help
.PHONY: help up demo migrate test check test-shards test-installation test-crash test-cluster test-reliability test-failover test-mysql test-galera test-security test-monitoring test-templates interop fuzz bench bench-all compare sbom lock clean services

VENV   := .venv
BIN    := $(VENV)/bin
LOCK   := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --no-emit-index-url \
          --no-emit-find-links --python-version 3.11 $(if $(UPGRADE),--upgrade)

LOCKED := requirements.lock requirements-s3.lock requirements-dev.lock requirements-templates.lock requirements-deploy.lock requirements-bench.lock requirements-pages.lock

# Slow tests that kill processes: run by `make test-crash`, not by `make test`.
KILLS  := tests/system/test_group_kills.py tests/system/test_media_kills.py tests/system/test_key_rotation.py \
          tests/system/test_idempotency_keys.py::test_each_key_creates_one_message_despite_crashes \
          tests/handset/test_group_terminal.py::test_robots_killed_in_an_active_group_show_each_message_once \
          tests/system/test_cloud_upstream.py::test_a_cut_connection_sends_nothing_twice_or_loses_nothing_as_configured

# Several Coreapps with several shards, and what else takes long of several processes.
SHARDS := tests/system/test_shards.py tests/system/test_planned_stops.py tests/system/test_unreached_owner.py tests/system/test_traces.py tests/coreapp/shard/test_layout_change.py \
          tests/coreapp/shard/test_unreached.py tests/coreapp/groups/test_joins.py tests/system/test_numbers.py
# Tests that other targets run too: `make test-release`, `test-templates`, `test-security` and `test-cloud`.
ELSEWHERE := tests/test_release.py tests/test_kubernetes_environment.py tests/test_systemd_guide.py \
             tests/security/test_hostile_responses.py tests/system/test_cloud_clients.py
# Two whole installations, of which one sends through the Cloud API of the other.
UPSTREAM := tests/system/test_cloud_upstream.py tests/system/test_cloud_templates.py
# `tidings up` and other commands as their users run them, against whole installations: killed, interrupted, restored.
UP     := tests/cli/test_installation.py tests/cli/test_template.py tests/cli/test_webhook_secret.py tests/system/test_lost_sessions.py tests/system/test_batching_client.py tests/system/test_tls_bursts.py tests/examples/test_offline_commands.py
# Versions of MySQL to test instead of MariaDB, and the suites: `make test-mysql MYSQL=9 MYSQL_SUITES=tests/crash`.
MYSQL := 8 9
MYSQL_SUITES := tests/storage tests/coreapp tests/network tests/crash
# Tests of what depends on the version of Python, for `make test-python`.
PYTHONS := tests/aio tests/client tests/e2ee tests/egress tests/http tests/keys tests/media tests/net tests/objects \
          tests/observability tests/secrets tests/wire tests/coreapp/sending tests/coreapp/receiving \
          $(patsubst %,tests/storage/test_%.py,database migrations pipeline rows sqlite_driver sqlite_files jobs messages) \
          tests/webapp/test_messages.py tests/webapp/test_openapi.py tests/cli/doctor tests/system/test_first_message.py
# Tests with generated input; `make test` runs them with a part of the input.
FUZZ  := tests/webapp/test_fuzz.py tests/webapp/test_fuzz_administration.py tests/webapp/test_media.py \
         tests/webapp/test_payloads.py tests/webapp/cloud/test_payloads.py tests/webapp/testing/test_payloads.py
# Tests of a database that moves or becomes unreachable: run by `make test-failover`.
AWAY   := tests/storage/test_failover.py

# Installs the script that checks accessibility.
AXE    := npm ci --silent --ignore-scripts --prefix tests/pages/browser

# Compiles Go's standard library the first time.
GO := 'tests/test_webhook_verifiers.py::test_a_verifier_accepts_signatures_of_either_secret_and_nothing_else[go]'

# Duration of `make soak`.
SOAK_MINUTES := 120

# Benchmarks of `make bench-all`, in order.
BENCHMARKS := system seed000 seed001 seed002 seed003 seed004 overload drift memory console shards diverted peers

help:  ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

up: $(VENV)/.runtime  ## run all processes until Ctrl-C
	@exec $(BIN)/tidings up

demo: $(VENV)/.runtime  ## send one message through a separate, temporary installation and show each step
	@exec $(BIN)/tidings demo

migrate: $(VENV)/.runtime  ## upgrade the tables of the database to this version
	@exec $(BIN)/tidings migrate

test: services  ## run all tests except the slow ones (under 15 minutes)
	@exec $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=10 --most-cpu 20 --few-variants $(KILLS:%=--deselect=%) --deselect=$(GO) $(SHARDS:%=--ignore=%) $(AWAY:%=--ignore=%) $(UP:%=--ignore=%) $(UPSTREAM:%=--ignore=%) --ignore=tests/fuzz/test_schemathesis.py --ignore=tests/cluster --ignore=tests/crash --ignore=tests/reliability --ignore=tests/load --ignore=tests/soak --ignore=tests/galera --ignore=tests/failover --ignore=tests/monitoring --ignore=tests/templates --ignore=tests/examples/test_node.py --ignore=tests/interop --ignore=tests/jest --ignore=tests/cloud_clients --ignore=tests/s3 --ignore=tests/upgrade --ignore=tests/release --ignore=tests/pages/browser $(ELSEWHERE:%=--ignore=%) -o faulthandler_timeout=300

.PHONY: test-variants
test-variants: services  ## run all tests of Coreapp and network, each on both databases and over every transport (10 minutes)
	@exec $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder tests/coreapp tests/network -o faulthandler_timeout=300

.PHONY: test-python test-pythons
test-python: services  ## run the tests that depend on the version of Python (3 minutes; VENV=build/other PYTHON=python3.11 on another one)
	@exec $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder $(PYTHONS) -o faulthandler_timeout=300

test-pythons:  ## run `make test` on the best build of each tested version of Python on the PATH (15 minutes each)
	@.ci/find-python --tested | while read -r python version build; do \
		echo "make test on $$build, $$python"; \
		$(MAKE) --no-print-directory test VENV=build/python-$$version PYTHON=$$python </dev/null || exit 1; \
	done

check: $(VENV)/.templates $(VENV)/.pages build/deploy/.installed build/bench/.installed  ## style, types, plain language, imports, licences, known vulnerabilities
	@.ci/check
	@$(BIN)/python .ci/supply_chain.py licences --environment build/deploy --environment build/bench $(LOCKED)
	@$(BIN)/python .ci/supply_chain.py audit $(LOCKED)

test-crash: services  ## kill every process under load and reconcile the ledgers
	@exec $(BIN)/python -m pytest -s tests/crash $(KILLS)

test-reliability: services  ## cut the power, change clocks, withdraw descriptors, memory and the network; a row that kills (root; 20 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 --ignore=tests/reliability/test_crash_points.py tests/reliability

.PHONY: test-crash-points
test-crash-points: services  ## let processes die 20 times at each named crash point (25 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/reliability/test_crash_points.py

.PHONY: test-load
test-load: services  ## test limits, a full callback queue, hot recipients, orphaned jobs, retention, logs under load (1 hour)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=1200 tests/load

.PHONY: soak
soak: services  ## send at half of the capacity for two hours and measure memory (nightly; SOAK_MINUTES=5 tries it)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=9000 tests/soak --minutes $(SOAK_MINUTES)

test-shards: services  ## four shards on two Coreapps: groups across them, joins, hand-over, planned stops, a kill, a cut; several numbers; traces (10 minutes)
	@exec $(BIN)/python -m pytest -s $(SHARDS)

test-installation: services  ## test `tidings up` (killed, interrupted, on other addresses), `tidings demo`, templates, docs/offline.md (5 minutes)
	@exec $(BIN)/python -m pytest -n 2 $(UP)

.PHONY: test-upstream
test-upstream: services  ## send and receive through the Cloud API of a second installation, and change its templates (2 minutes)
	@exec $(BIN)/python -m pytest -n 2 --dist loadfile $(UPSTREAM)

test-failover: services  ## test fail-over to a database replica, and 30 s without database, Redis or network, under load (12 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/failover $(AWAY)

test-cluster: services  ## test several network nodes with Redis: killed processes, and the network's tests on two nodes (20 minutes)
	@$(BIN)/python -m pytest -s tests/cluster
	@exec $(BIN)/python -m pytest -n 2 --dist loadfile tests/network --nodes 2 -o faulthandler_timeout=300

.PHONY: test-upgrade
test-upgrade: services  ## upgrade from each supported earlier revision under load, and downgrade (needs the git history; 15 minutes)
	@$(BIN)/python -m pytest --long tests/storage/test_migrations.py
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=900 tests/upgrade

.PHONY: test-release
test-release: $(VENV)/.dev  ## install the wheel with pipx on a bare Debian, send a message, upgrade from the previous wheel (git history; 10 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=1200 tests/test_release.py tests/release

test-mysql: services  ## run the storage, Coreapp, network and crash suites on MySQL 8.0 and 9 (installs Maven; 1 hour; MYSQL=8 for one)
	@for version in $(MYSQL); do TIDINGS_TEST_SERVER=mysql$$version $(BIN)/python -m harness.database_server || exit 1; done
	@for version in $(MYSQL); do for suite in $(MYSQL_SUITES); do \
		TIDINGS_TEST_SERVER=mysql$$version $(BIN)/python -m pytest -k "not sqlite" -o faulthandler_timeout=600 $$suite || exit 1; \
	done; done

test-galera: services  ## test a Galera cluster of three nodes: two owners, load, a node killed, a node cut off (5 minutes)
	@exec $(BIN)/python -m pytest -s -o faulthandler_timeout=600 tests/galera

test-security: services  ## run long attacks on real processes and measure memory, CPU and delay
	@exec $(BIN)/python -m pytest -s --long -o faulthandler_timeout=300 tests/security

test-monitoring: services  ## run every query of dashboards and alerts on a real Prometheus, and time alerts (20 minutes; PICTURE=file draws the panels)
	@exec env PICTURE=$(PICTURE) $(BIN)/python -m pytest -o faulthandler_timeout=900 tests/monitoring

.PHONY: test-storage
test-storage: services  ## test media and blobs in buckets of real S3 servers, which are built once (needs Go; 10 minutes)
	@$(BIN)/python -m harness.s3_server
	@exec $(BIN)/python -m pytest -o faulthandler_timeout=300 tests/s3

.PHONY: test-deploy
test-deploy: $(VENV)/.dev build/deploy/.installed  ## build the image and start each compose file with podman (root; 15 minutes)
	@exec $(BIN)/python -m tests.deploy

.PHONY: test-pages
test-pages: services $(VENV)/.pages  ## use the pages in Debian's Chromium, against a whole installation, and check them with axe (needs npm; 5 minutes)
	@$(AXE)
	@exec $(BIN)/python -m pytest tests/pages/browser

.PHONY: pictures
pictures: services $(VENV)/.pages  ## draw the pictures of the pages in docs/pictures, from a real run (4 minutes)
	@exec $(BIN)/python -m tests.pages.browser.pictures docs/pictures

test-templates: $(VENV)/.templates services  ## lint the templates for AWS, Kubernetes and systemd, and create the AWS stacks in moto
	@exec $(BIN)/python -m pytest tests/templates tests/test_kubernetes_environment.py tests/test_systemd_guide.py

.PHONY: test-examples
test-examples: $(VENV)/.dev  ## run the clients, webhook receivers and verifiers of docs/examples in Python, Node and Go (needs Node 20 and Go; 2 minutes)
	@exec $(BIN)/python -m pytest tests/examples tests/test_webhook_verifiers.py

.PHONY: test-cloud
test-cloud: $(VENV)/.dev  ## run unchanged clients of the Cloud API in JavaScript, Java and Rust, and the Jest fixture of docs/testing.md (needs Node 20, npm, Cargo and root; 3 minutes, the first time 8)
	@npm ci --silent --ignore-scripts --prefix tests/jest
	@npm ci --silent --ignore-scripts --prefix tests/cloud_clients/node
	@exec $(BIN)/python -m pytest tests/jest tests/cloud_clients tests/system/test_cloud_clients.py

interop: $(VENV)/.dev  ## exchange messages with devices of official Signal releases (needs Node 20 and npm)
	@npm ci --silent --ignore-scripts --prefix tests/interop
	@exec $(BIN)/python -m pytest -rs tests/interop

fuzz: services  ## fuzz every operation of /openapi.json and /cloud/openapi.json, each for 1 and for 10 minutes; writes the reports to build/fuzz
	@$(BIN)/python -m pytest --long $(FUZZ)
	@$(BIN)/python -m pytest tests/fuzz/test_schemathesis.py
	@$(BIN)/python -m tests.fuzz
	@exec $(BIN)/python -m tests.fuzz --api cloud

bench-all: $(BENCHMARKS:%=bench-%)  ## run all benchmarks sequentially; writes the results to benchmarks/results

bench: bench-system  ## measure the whole system; `make bench-NAME ARGS=--quick` for others (names: benchmarks/README.md)

bench-seed000: build/bench/.installed

bench-%: services
	@exec $(BIN)/python -m benchmarks.$* $(ARGS)

compare: services  ## compare the performance of this tree with an earlier one (BASE=revision)
	@exec $(BIN)/python -m benchmarks.compare $(BASE)

sbom: $(VENV)/.dev  ## write the bill of materials (CycloneDX) to build/sbom.cdx.json (IMAGE=tidings: of the image, with Debian)
	@$(BIN)/python .ci/supply_chain.py sbom build/sbom.cdx.json $(if $(IMAGE),--image $(IMAGE))

.PHONY: release
release: $(VENV)/.dev  ## build wheel, source distribution, SBOM, image and checksums of the commit in dist/ (BASE=image: base of the image)
	@$(BIN)/python .ci/release.py $(if $(BASE),--base $(BASE)) $(BUILD_OPTIONS:%=--build-option=%) $(if $(REQUIRE_IMAGE),--require-image)

lock: $(VENV)/.dev  ## pin the dependencies of pyproject.toml (UPGRADE=1 updates them)
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --output-file requirements.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra dev --constraint requirements.lock \
		--output-file requirements-dev.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra s3 --constraint requirements.lock \
		--output-file requirements-s3.lock >/dev/null
	@$(LOCK) --group pyproject.toml:deploy --output-file requirements-deploy.lock >/dev/null
	@$(LOCK) --group pyproject.toml:bench --output-file requirements-bench.lock >/dev/null
	@$(LOCK) --group pyproject.toml:pages --constraint requirements-dev.lock --output-file requirements-pages.lock >/dev/null
	@$(LOCK) --group pyproject.toml:peers --output-file benchmarks/peers/requirements.lock >/dev/null
	@echo 'setuptools>=80' | $(LOCK) pyproject.toml - --extra dev --extra templates --constraint requirements-dev.lock \
		--output-file requirements-templates.lock >/dev/null
	@.ci/check-wheels $(LOCKED) benchmarks/peers/requirements.lock
	@echo "wrote requirements.lock and those of s3, dev, deploy, bench, pages, peers and templates"

clean:  ## remove the environment and all caches, but not the data directory
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Virtual environment: created once, installed again only when its sources have changed.

$(VENV)/bin/python:
	@.ci/make-venv $(VENV) $(PYTHON)

$(VENV)/.runtime: pyproject.toml requirements.lock | $(VENV)/bin/python
	@.ci/install $(VENV) requirements.lock
	@touch $@

$(VENV)/.dev: pyproject.toml requirements.lock requirements-dev.lock | $(VENV)/bin/python
	@.ci/install $(VENV) requirements-dev.lock
	@touch $@ $(VENV)/.runtime

# Programs for `make test-deploy`, in a separate environment.
build/deploy/.installed: requirements-deploy.lock
	@mkdir -p build
	@.ci/make-venv build/deploy
	@build/deploy/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-deploy.lock
	@touch $@

# Locust, in a separate environment.
build/bench/.installed: requirements-bench.lock
	@mkdir -p build
	@.ci/make-venv build/bench
	@build/bench/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-bench.lock
	@touch $@

# Packages that only the tests of templates need; the others have the versions of requirements-dev.lock.
$(VENV)/.templates: $(VENV)/.dev requirements-templates.lock
	@.ci/install $(VENV) requirements-templates.lock
	@touch $@

# Playwright beside the packages for tests; its packages that those have too have the same versions.
$(VENV)/.pages: $(VENV)/.dev requirements-pages.lock
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-pages.lock
	@touch $@

# Servers that tests start: installed before the tests run, so that parallel tests do not install them at once.
services: $(VENV)/.dev
	@$(BIN)/python -m harness.packages
