# Everything a fresh machine needs is python3, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: run demo test coverage test-quick test-long faults lint format bench bench-peers conformance interop pages docs picture imports shells fault-tools browser postgres lock clean

run: $(READY)  ## set everything up and open the post room: a socket, HTTP, WebSocket; it says what to type next
	@$(BIN)/postroom serve

demo: $(READY)  ## watch agents exchange letters, a worker killed in the middle, a letter nobody can handle, and three worlds linked
	@$(BIN)/python examples/demo.py --slow

test: $(READY) shells fault-tools browser postgres  ## style, types, rooms, every test, the faults; prints where the time went
	@$(BIN)/python tools/check.py

coverage: $(READY) shells fault-tools browser postgres  ## the same, counting which lines the tests reach
	@$(BIN)/python tools/check.py --coverage

test-quick: $(READY)  ## the inner loop: style, types, rooms, and the tests that need no server and no disk
	@$(BIN)/python tools/check.py --quick

test-long: $(READY)  ## the same tests with many more examples, processes and kills; the faults have their own
	@POSTROOM_TEST_LONG=1 $(BIN)/python -m pytest -q -n 2 --ignore=tests/faults

faults: $(READY) fault-tools postgres  ## the long form of the fault suite: kills, failing disks, damage, clocks, load
	@POSTROOM_TEST_LONG=1 POSTROOM_FAULTS_MUST_RUN=1 $(BIN)/python -m pytest -q -n 2 --durations=8 tests/faults tests/postgres

lint: $(READY)  ## style, types, rooms; prints the shape of the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python tools/shape.py

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(READY)  ## speed, as ratios against what this disk can do; writes docs/performance.md and its plots
	@$(BIN)/python -m bench --write

bench-peers: $(READY)  ## the same work by what you would pick instead; writes docs/peers.md
	@$(BIN)/python -m bench.peers

conformance: $(READY)  ## the public MCP conformance suite, both revisions; fetches it from npm
	@$(BIN)/python tools/conformance.py

interop: $(READY)  ## programs that are not ours: clients from npm, and every version of nanobot that is known
	@POSTROOM_INTEROP=1 $(BIN)/python -m pytest -q tests/interop
	@$(BIN)/python tools/nanobot.py
	@POSTROOM_INTEROP=1 $(BIN)/python -m pytest -q -n 2 --dist=loadgroup -m nanobot tests/nanobot/channel

pages: $(READY)  ## write what is made from the code: the reference pages, the types of the async face
	@$(BIN)/python tools/pages.py

docs: pages  ## build the site in build/site, to be read without a network
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q --strict
	@! grep -rlE '<(script|img|iframe|link)[^>]* (src|href)="?https?:' build/site --include=*.html || { echo "the site needs a network"; exit 1; }
	@echo "build/site/index.html"

picture: $(READY) browser  ## draw the terminal and the dashboard of the README and the docs, from a real run
	@$(BIN)/python tools/picture.py
	@$(BIN)/python tools/screenshots.py

imports: $(READY)  ## what each command loads
	@$(BIN)/python tools/imports.py

# Where they are missing and may not be installed, the tests that need them are skipped and say so.
shells:
	@missing=; for shell in bash zsh fish tmux; do command -v $$shell >/dev/null || missing="$$missing $$shell"; done; \
	 if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing$$missing, to test completion and the inbox in them"; \
	   { apt-get install -qq -y $$missing || { apt-get update -qq && apt-get install -qq -y $$missing; }; } \
	     >/dev/null 2>&1 </dev/null || echo "could not install$$missing"; \
	 fi

# Where they are missing and may not be installed, the faults that need them are skipped and say so.
FAULT_TOOLS := strace:strace mkfs.ext4:e2fsprogs mkfs.xfs:xfsprogs unshare:util-linux cc:gcc
fault-tools:
	@missing=; for tool in $(FAULT_TOOLS); do \
	   PATH=$$PATH:/usr/sbin:/sbin command -v $${tool%%:*} >/dev/null || missing="$$missing $${tool##*:}"; done; \
	 if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing$$missing, to make disks and processes fail"; \
	   { apt-get install -qq -y $$missing || { apt-get update -qq && apt-get install -qq -y $$missing; }; } \
	     >/dev/null 2>&1 </dev/null || echo "could not install$$missing"; \
	 fi

# A browser from the system's packages, and what drives it: 64 MB and 165 MB, for the tests of the dashboard alone. Where
# it is missing and may not be installed, they are skipped and say so.
BROWSER := chromium-headless-shell
DRIVER := $(VENV)/.browser
browser: $(READY)
	@if ! command -v $(BROWSER) chromium chromium-browser google-chrome >/dev/null && [ "$$(id -u)" = 0 ] && \
	   command -v apt-get >/dev/null; then \
	   echo "installing $(BROWSER), to test the dashboard in it"; \
	   { apt-get install -qq -y --no-install-recommends $(BROWSER) || \
	     { apt-get update -qq && apt-get install -qq -y --no-install-recommends $(BROWSER); }; } \
	     >/dev/null 2>&1 </dev/null || echo "could not install $(BROWSER)"; \
	 fi
	@if command -v $(BROWSER) chromium chromium-browser google-chrome >/dev/null && \
	   [ ! $(DRIVER) -nt requirements-browser.lock ]; then \
	   if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	   else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	   $$pip install -q --disable-pip-version-check --require-hashes -r requirements-browser.lock && touch $(DRIVER); \
	 fi

# A server for the tests of rooms on PostgreSQL; each test starts its own, in a temporary folder.
postgres:
	@if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 && ! command -v initdb >/dev/null && \
	   [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	   echo "installing postgresql-15, to test rooms on a server"; \
	   { apt-get install -qq -y postgresql-15 || { apt-get update -qq && apt-get install -qq -y postgresql-15; }; } \
	     >/dev/null 2>&1 </dev/null || echo "could not install postgresql-15"; \
	 fi

lock:  ## pin the newest versions of everything
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install -q pip-tools
	$(VENV)-lock/bin/pip-compile -q --extra dev --extra serve --extra mcp --extra postgres --strip-extras --generate-hashes --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --no-header --upgrade -o requirements.lock pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --extra docs --strip-extras --generate-hashes --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --no-header --upgrade -c requirements.lock -o requirements-docs.lock pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --extra browser --strip-extras --generate-hashes --no-emit-index-url \
		--no-emit-trusted-host --no-emit-find-links --no-header --upgrade -c requirements.lock -o requirements-browser.lock pyproject.toml
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Some systems split venv's pip off; then the outer pip fills the environment.
$(READY): requirements.lock pyproject.toml
	@echo "setting up $(VENV): half a minute"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || $(PYTHON) -m venv --without-pip $(VENV)
	@if $(BIN)/python -m pip --version >/dev/null 2>&1; then pip="$(BIN)/python -m pip"; \
	 else pip="$(PYTHON) -m pip --python $(BIN)/python"; fi; \
	 $$pip install -q --disable-pip-version-check --require-hashes -r requirements.lock && \
	 $$pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@
