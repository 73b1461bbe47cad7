# Every target sets up what it needs; a second run starts from the caches.
PYTHON ?= python3
BIN := .venv/bin
# Tests run side by side, more of them than there are processors: without guests they wait for two
# thirds of their time. VM_WORKERS=0 runs those with guests one after the other.
WORKERS ?= 4
VM_WORKERS ?= 2
SERVER ?= server,addr=192.168.69.127,port=9999
CLIENT ?= client,addr=192.168.69.127,port=9999,count=100,validate

# A thousand processes of the tests would compile all their modules anew.
unexport PYTHONDONTWRITEBYTECODE

BLUEFLAME ?= blueflame

.PHONY: setup docs krping krping-hosts library test test-all mutants ntrdma-tcp conformance conformance-short blueflame wheel fuzz fuzz-brief lint size bench doctor clean

# Host packages are looked at each time: one may have gone, or come to be needed, since.
setup: .venv/.installed
	@$(BIN)/python -m bluebridge.images.host
	@$(BIN)/python -m bluebridge.images build
	@$(BIN)/python -m bluebridge.host_tools.lab.snapshot

# The environment follows pyproject.toml; host packages come first, since venv is one of them.
.venv/.installed: pyproject.toml
	@$(PYTHON) -m bluebridge.images.host
	@$(PYTHON) -m bluebridge.images.environment .venv dev
	@touch .venv/.usable $@

# Without what tests, documents and the compiler need.
.venv/.usable: pyproject.toml
	@$(PYTHON) -m bluebridge.images.host hosts
	@$(PYTHON) -m bluebridge.images.environment .venv
	@touch $@

# Compiles nothing, which would take longer than all else; what `setup` has compiled is used.
krping: .venv/.usable
	@$(BIN)/python -m bluebridge.images.host guests
	@$(BIN)/python -m bluebridge.images build --interpreted
	@$(BIN)/python -m bluebridge.host_tools.lab.snapshot
	$(BIN)/bluebridge krping "$(SERVER)" "$(CLIENT)"

# Without guests: neither QEMU nor a kernel, only libvfio-user is fetched and built.
krping-hosts:
	@$(PYTHON) -m bluebridge.images.host hosts
	@$(MAKE) --no-print-directory -j2 .venv/.usable library
	$(BIN)/bluebridge krping --host a,b "$(SERVER)" "$(CLIENT)"

library:
	@$(PYTHON) -m bluebridge.images path libvfio-user > /dev/null

# In ten minutes all that a change can break, at least once: without guests nearly
# everything, with guests one test of each thing that a user does. Nothing is run again.
PYTEST := $(BIN)/python -m pytest --dist loadfile
test: setup
	$(PYTEST) tests/unit tests/wire -n $(WORKERS) --brief
	@$(MAKE) --no-print-directory fuzz-brief
	$(PYTEST) tests/vm -n $(VM_WORKERS) --brief

# Then what `test` leaves out; each test with a device server also as where there is no compiler, with
# its first parameters. A test with guests that failed runs once more, two at most: a host may be too
# busy for it.
AGAIN := --reruns 1 --max-suite-reruns 2 --rerun-show-tracebacks
test-all: test
	$(PYTEST) tests/unit tests/wire -n $(WORKERS) --rest
	BLUEBRIDGE_PURE=1 $(PYTEST) tests/wire -n $(WORKERS) --brief --first
	$(PYTEST) tests/vm -n $(VM_WORKERS) --rest $(AGAIN) --durations=25

# Plants defects in memory, interpreted; a named test must notice each (tests/mutants).
mutants: .venv/.installed
	$(BIN)/python -m tests.mutants

# NTRDMA over TCP: contracts of verbs, krping and RTRS, stress, a killed peer; under half a minute.
ntrdma-tcp: .venv/.installed
	$(BIN)/python -m pytest tests/unit/ntrdma/tcp -n $(WORKERS)

# The long lists: planted defects, unit tests interpreted, tests with guests, then stock programs
# between two guests, even if one of those before failed. Stopped, the programs go on where they
# were. Writes docs/conformance.md and its like. With CARD=connectx5 only the programs, those of the
# run about a ConnectX-5.
CARD ?=
OF_CARD := $(addprefix --card ,$(CARD))
RESULTS ?= build/conformance$(addprefix -,$(CARD))
PROGRAMS := tests/vm/test_programs.py
STOCK = $(PYTEST) $(PROGRAMS) $(OF_CARD) --results $(RESULTS) $(AGAIN); \
	if [ $$? -eq 2 ]; then exit 130; fi; \
	$(BIN)/python -m tests.campaigns.conformance $(OF_CARD) $(RESULTS)
conformance: setup
ifneq ($(CARD),)
	$(STOCK)
else
	$(BIN)/python -m tests.mutants; defects=$$?; \
	if [ $$defects -eq 130 ]; then exit 130; fi; \
	BLUEBRIDGE_PURE=1 $(PYTEST) tests/unit -n $(WORKERS); pure=$$?; \
	$(PYTEST) tests/vm -n $(VM_WORKERS) -m long --ignore $(PROGRAMS) $(AGAIN); tests=$$?; \
	if [ $$tests -eq 2 ]; then exit 130; fi; \
	$(STOCK) && exit $$((defects | pure | tests))
endif

conformance-short: setup
	$(PYTEST) $(PROGRAMS) -m 'not long'

# The BlueFlame study again, into one folder: pictures, tables, pages. Stopped, it goes on.
blueflame: setup
	$(BIN)/python -m tests.campaigns.blueflame_study $(BLUEFLAME)

# With the compiled modules for this Python and machine, into dist/.
wheel: .venv/.installed
	$(BIN)/python -m bluebridge.images.wheel dist

# Fuzzes what guests and clients can write, keeps inputs that reach more in tests/fuzz/corpus.
SECONDS ?= 600
fuzz: setup
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .[fuzz]
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

# A part of `test`: what it finds is a file in tests/fuzz/findings, and in the output.
BRIEF ?= 20
fuzz-brief: .venv/.installed
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: atheris || true
	$(BIN)/python -m tests.fuzz --brief --seconds $(BRIEF)

# Lines of source by room, and how many came or went since the last release tag.
size: .venv/.installed
	@$(BIN)/python -m tests.size

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m tests.campaigns.bench

doctor: .venv/.installed
	@$(BIN)/bluebridge doctor

# One site with search and the API reference; links are checked, nothing is loaded from outside.
API := bluebridge.guest.verbs bluebridge.host_tools.pytest_plugin bluebridge.device.buslog.reader \
	bluebridge.host_tools.analyzer.activity bluebridge.host_tools.analyzer.analysis
docs: .venv/.installed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@$(BIN)/python -m pdoc --docformat markdown -o build/site/api $(API)
	@echo "build/site; to read and search it: $(BIN)/python -m http.server -b 127.0.0.1 -d build/site"

# Removes what this checkout made; `python -m bluebridge.images clean` drops the shared cache as well.
clean:
	rm -rf .venv build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
