#!/bin/sh
# Runs the unsafe parts of offing-knn (AVX2 loops, packed stacks and lists, memory maps) under valgrind, which
# checks every read and write against what was allocated. About a minute. Needs valgrind.
set -eu
cargo build --profile dev -p offing-knn --example selfcheck
bin="${CARGO_TARGET_DIR:-target}/debug/examples/selfcheck"
exec valgrind --quiet --error-exitcode=1 "$bin"
