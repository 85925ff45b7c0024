#!/bin/sh
# Runs all unsafe code under valgrind, which checks every read and write against what was allocated: search (AVX2 loops, packed
# stacks and lists), networks (kernels, buffers, thread pool), the ensemble's head, prefetching, and the C interface to MuJoCo.
# `scripts/valgrind.sh` runs all of it, `scripts/valgrind.sh knn` one part: knn, networks, mujoco. valgrind knows no AVX-512: the
# programs see a machine with AVX2.
set -eu

check() { valgrind --quiet --error-exitcode=1 --num-callers=30 "$@"; }

# The unit tests of a crate as a program.
unit_tests() {
    cargo test --locked -p "$1" --lib --no-run 2>&1 | sed -n 's/.*Executable.*(\(.*\))$/\1/p'
}

knn() {
    cargo build --locked -p offing-knn --example selfcheck
    check "${CARGO_TARGET_DIR:-target}/debug/examples/selfcheck"
}

# Tests that learn for long say nothing more about memory than those that do not.
networks() {
    # Nothing is fast here, so the machine's peak is left out.
    check "$(unit_tests offing)" nn:: dynamics::head:: prefetch:: --skip nn::peak:: --test-threads 1
}

mujoco() {
    check "$(unit_tests offing-mujoco)" engine:: --test-threads 1
}

for part in ${*:-knn networks mujoco}; do
    echo "valgrind: $part"
    "$part"
done
