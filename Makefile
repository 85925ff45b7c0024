# The few verbs of this project. `make test` is what CI runs; nothing in it needs more than cargo and Python 3.
.PHONY: test test-all rust-test python-test lint docs bench clean

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python

test: lint rust-test docs python-test

lint:
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

rust-test:
	cargo test --workspace --locked

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# h5py, Minari, PyArrow and Gymnasium are the judges of the files and simulators; they live in a virtual environment.
python-test: $(VENV)/ready
	cargo build --locked --workspace --examples
	$(PY) -m pytest -q scripts

$(VENV)/ready: scripts/requirements.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install -q -r scripts/requirements.txt
	touch $@

# Longer: more fuzzing, and the unsafe code under valgrind.
test-all: test
	PROPTEST_CASES=5000 cargo test -p offing --release --locked --test bad_files
	OFFING_KNN_CASES=5000 OFFING_KNN_FUZZ=100000 cargo test -p offing-knn --release --locked
	scripts/valgrind_knn.sh

bench:
	cargo run --release -- bench env
	cargo run --release -- bench data

clean:
	cargo clean
	rm -rf $(VENV)
