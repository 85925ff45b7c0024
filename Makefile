# The few verbs of this project. `make test` is what CI runs; nothing in it needs more than cargo and Python 3.
.PHONY: test test-all fuzz chaos rust-test python-test python-package peers wheel ray-test lint docs docs-check docs-run docs-update book bench clean

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
# The whole workspace, as `cargo test --workspace` does: a crate alone has other features, and all it needs would be compiled once more.
BUILD := cargo build --quiet --locked --workspace
TARGET := $(or $(CARGO_TARGET_DIR),target)
BUILT := $(TARGET)/debug

test: lint rust-test docs python-test docs-run

lint:
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

rust-test:
	cargo test --workspace --locked
	$(BUILD) --examples
	$(BUILT)/examples/fuzz_readers 20000
	$(MAKE) chaos KILLS=12 CHAOS="--minutes 0.5"

# The pages of the crates, and the documentation as a site with search in book/.
docs: docs-check book
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Links and anchors, pages that the summary leaves out, figures that are not those of the committed numbers.
docs-check:
	$(PYTHON) scripts/book.py check
	$(PYTHON) scripts/readme_figures.py --check

# mdBook without its server: about a minute on two cores, once. MDBOOK=mdbook takes one that is installed.
MDBOOK ?= $(TOOLS)/bin/mdbook
TOOLS := $(CURDIR)/target/tools
book: $(filter $(TOOLS)/%,$(MDBOOK))
	$(PYTHON) scripts/book.py build --mdbook $(MDBOOK) --out book

$(TOOLS)/bin/mdbook:
	CARGO_PROFILE_RELEASE_OPT_LEVEL=1 cargo install --quiet --locked --version 0.5.4 --no-default-features --features search --root $(TOOLS) mdbook

# Every console line of README.md and docs/, in a small size.
docs-run:
	$(BUILD) --bins
	$(PYTHON) scripts/run_docs.py --offing $(BUILT)/offing --simulator $(TARGET)/tmp/home

# Rewrites the tables in docs/ that come from doc comments, defaults and presets, and the figures that come from committed numbers;
# `rust-test` and `docs-check` fail when they are not current.
docs-update:
	$(PYTHON) scripts/readme_figures.py
	OFFING_UPDATE_DOCS=1 cargo test -q -p offing --locked --test generated_docs

# h5py, Minari, PyArrow and Gymnasium are the judges of the files and simulators; they live in a virtual environment.
python-test: $(VENV)/ready python-package
	$(BUILD) --examples
	$(PY) -m mypy
	$(PY) -m pytest -q scripts crates/py/tests

# The Python package, built as the tests of Rust are and put into the virtual environment.
python-package: $(VENV)/ready
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(VENV)/bin/maturin develop --quiet --locked

$(VENV)/ready: scripts/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -r scripts/requirements.txt
	touch $@

# PyTorch and d3rlpy as judges of the drop-ins, and the tutorial in PyTorch: gigabytes, so in an environment of their own.
PEERS := .venv-peers
peers:
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install -q maturin pytest hypothesis torch d3rlpy pandas
	VIRTUAL_ENV=$(CURDIR)/$(PEERS) $(PEERS)/bin/maturin develop --quiet --locked
	$(PEERS)/bin/python -m pytest -q crates/py/tests/test_large_peers.py crates/py/tests/test_docs.py crates/py/tests/test_arrays.py -k "peers or pytorch or torch or d3rlpy"

# The package as others install it: built, then put into an empty environment and used. Says how long and how large.
wheel: $(VENV)/ready
	$(VENV)/bin/maturin build --locked --out dist --interpreter $(PY)
	$(PYTHON) scripts/install_wheel.py dist

# A Ray cluster of two nodes on this machine: sharded search, and a grid that loses a node half-way.
ray-test: $(VENV)/ready python-package
	$(PY) -m pip install -q 'ray>=2.9'
	$(PY) -m pytest -q scripts/ray_cluster.py

# Damages small files of every format and reads them, in another order with each SEED: so many CASES, or for so many MINUTES.
CASES ?= 300000
MINUTES ?=
SEED ?= 0
fuzz:
	cargo run --release -p offing --locked --example fuzz_readers -- $(if $(MINUTES),--minutes $(MINUTES),$(CASES)) --seed $(SEED)

# Kills trainings, studies, tables, generated datasets and downloads at random moments, harms their files, and compares every byte at
# the end. The simulator is that of the tests, if they have fetched it.
KILLS ?= 20
CHAOS ?=
chaos:
	$(BUILD) --bins
	$(PYTHON) scripts/chaos.py --kills $(KILLS) --seed $(SEED) --program $(BUILT)/offing --simulator $(TARGET)/tmp/home/mujoco $(CHAOS)

# Longer: more fuzzing, and the unsafe code under valgrind.
test-all: test
	PROPTEST_CASES=5000 cargo test -p offing --release --locked --test bad_files
	$(MAKE) fuzz CASES=1000000
	$(MAKE) chaos KILLS=300
	OFFING_KNN_CASES=5000 OFFING_KNN_FUZZ=100000 cargo test -p offing-knn --release --locked
	scripts/valgrind.sh

bench:
	cargo run --release -- bench env
	cargo run --release -- bench data

clean:
	cargo clean
	rm -rf $(VENV) book
