# Start with `make demo` and `make test`. Each creates its environment first, with uv if it is installed, otherwise with venv
# and pip: .demo from requirements/run.lock, which the proxy runs on, and .venv from requirements/dev.lock, for developers.
.DEFAULT_GOAL := help
BIN := .venv/bin
UPSTREAM ?= https://api.openai.com/v1
SOAK ?= 20
MINUTES ?= 60

PYTHON ?= python3
LOCK := uv pip compile pyproject.toml --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

.PHONY: help demo test coverage check bench pictures faults fuzz e2e validate fronts docs serve lock clean

help: ## what can be made
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

# $(call install,FOLDER,LOCK,MEGABYTES,FLAGS OF THE PROJECT ITSELF). The lock is the whole list: with --no-deps no resolver
# runs. An older pip, asked for `coverage[toml]` beside a pinned `coverage`, takes a newer release and refuses it for its
# missing hash.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; make PYTHON=… names one")'
	@command -v uv >/dev/null 2>&1 || $(PYTHON) -c 'import ensurepip' 2>/dev/null || \
		{ echo "$(PYTHON) cannot create environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing $$(grep -c '^[a-z]' $2) packages into $1, once ($3 MB)."
	@if command -v uv >/dev/null 2>&1; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $1 && \
		uv pip install --quiet --python $1/bin/python --no-deps --require-hashes -r $2 && \
		uv pip install --quiet --python $1/bin/python --no-deps $4 -e .; \
	else \
		$(PYTHON) -m venv $1 && \
		$1/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $2 && \
		$1/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $4 -e .; \
	fi
	@touch $1/made
endef

.venv/made: requirements/dev.lock pyproject.toml proxy/__init__.py tools/build_hooks.py
	$(call install,.venv,requirements/dev.lock,480,--no-build-isolation)

.demo/made: requirements/run.lock pyproject.toml proxy/__init__.py tools/build_hooks.py
	$(call install,.demo,requirements/run.lock,120)

demo: .demo/made ## one agent's work with and without the proxy, then the dashboard; ONCE=1 ends after the work
	@.demo/bin/context-proxy demo $(if $(ONCE),--once)

test: .venv/made ## all tests, or those in TESTS=…
	@$(BIN)/pytest $(TESTS)

coverage: .venv/made ## all tests, and what of core/ and wire/ they leave out
	@$(BIN)/coverage run -m pytest -n 0 && $(BIN)/coverage report

check: .venv/made ## lint, format, types, imports
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: .venv/made ## CPU against nginx, written to docs/benchmarks.md
	@$(BIN)/python -m tools.bench --write docs/benchmarks.md

pictures: .venv/made ## README's picture, of the demo, and the dashboard's in docs/, taken anew with Chromium
	@PYTHONPATH=.:tests $(BIN)/python -m support.pictures

faults: .venv/made ## what may go wrong, tried; written to docs/reliability.md; SOAK=minutes of mixed traffic
	@PYTHONPATH=.:tests $(BIN)/python -m tools.faults --soak $(SOAK) --write docs/reliability.md

fuzz: .venv/made ## cases that break a rule, looked for; MINUTES=60; what is found goes into tests/fuzz/corpus
	@PYTHONPATH=.:tests $(BIN)/python -m fuzz --minutes $(MINUTES)

e2e: .venv/made ## real clients and coding agents, directly and through the proxy; installs them into .e2e
	@PYTHONPATH=.:tests $(BIN)/python -m tools.e2e

.deploy-tools/made: deploy/requirements.txt
	@$(PYTHON) -m venv .deploy-tools
	@.deploy-tools/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

# Left out: what is no manifest, a patch (a test applies it), and a PodMonitor, whose kind is not Kubernetes' own.
MANIFESTS = $(filter-out %/kustomization.yaml %/config.yaml %/patch.yaml %/podmonitor.yaml,$(wildcard deploy/kubernetes/*/*.yaml))

validate: .deploy-tools/made ## the Dockerfile, deploy/ and the workflows, by the tools and schemas of each format
	.deploy-tools/bin/hadolint Dockerfile
	.deploy-tools/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	.deploy-tools/bin/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	.deploy-tools/bin/check-jsonschema --builtin-schema vendor.github-issue-forms .github/ISSUE_TEMPLATE/[!c]*.yml
	.deploy-tools/bin/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	.deploy-tools/bin/check-jsonschema --builtin-schema vendor.compose-spec deploy/compose.yaml
	.deploy-tools/bin/kubernetes-validate --strict --quiet $(MANIFESTS)
	@for unit in $$(command -v systemd-analyze >/dev/null && ls deploy/systemd/*.service); do \
		copy=.deploy-tools/$${unit##*/} && sed 's,^ExecStart=.*,ExecStart=/bin/true,' $$unit > $$copy && \
		systemd-analyze verify $$copy && systemd-analyze security --offline=true --threshold=15 $$copy | tail -1 || exit 1; \
	done
	@for folder in $$(command -v kubectl >/dev/null && ls -d deploy/kubernetes/*/); do \
		kubectl kustomize $$folder > .deploy-tools/rendered.yaml || exit 1; \
		case $$folder in */podmonitor/) continue;; esac; \
		.deploy-tools/bin/kubernetes-validate --strict --quiet .deploy-tools/rendered.yaml || exit 1; \
	done

fronts: .venv/made ## nginx and Caddy in front of a proxy, as far as they are installed
	@$(BIN)/python deploy/check_fronts.py

.docs-tools/made: requirements/docs.lock
	@$(PYTHON) -m venv .docs-tools
	@.docs-tools/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	@touch $@

docs: .docs-tools/made ## the documentation as a site, in .site; fails on a broken link
	@NO_MKDOCS_2_WARNING=1 .docs-tools/bin/mkdocs build --config-file - < docs/mkdocs.yml
	@echo "$(CURDIR)/.site/index.html"

serve: .demo/made ## run the proxy; UPSTREAM=URL
	@.demo/bin/context-proxy serve --upstream $(UPSTREAM)

config.example.yaml docs/agents.md docs/api.md docs/architecture.svg docs/dependencies.md docs/log.md docs/metrics.md docs/refusals.md docs/rooms.md docs/settings.md proxy/dashboard/api.html: \
		$(shell find proxy tools/handbook -name '*.py') pyproject.toml requirements/run.lock .venv/made
	@$(BIN)/python -m tools.handbook $@ > $@

lock: ## choose the newest versions that pyproject.toml allows; needs uv
	@$(LOCK) --upgrade --extra compression --extra mcp --extra otel --extra redis --group dev -o requirements/dev.lock
	@$(LOCK) -c requirements/dev.lock -o requirements/run.lock
	@$(LOCK) -c requirements/dev.lock --extra compression --extra redis -o requirements/image.lock
	@$(subst pyproject.toml,,$(LOCK)) --upgrade --group docs -o requirements/docs.lock

clean: ## remove what was made
	rm -rf .venv .demo .e2e .deploy-tools .docs-tools .site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage dist
