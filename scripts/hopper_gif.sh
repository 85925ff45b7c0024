#!/usr/bin/env bash
# docs/images/hopper.gif: hopper before and after, from a finished Landfall run on hopper-medium-replay. On the left a typical
# episode of the data, on the right the learnt policy, with the model's imagination as an outline in the colour of u.
#
#     scripts/hopper_gif.sh runs/landfall/hopper-medium-replay/s0-…
set -euo pipefail
run=$(realpath "${1:?give a run directory}")
cd "$(dirname "$0")/.."
offing=${OFFING:-${CARGO_TARGET_DIR:-target}/release/offing}
mkdir -p docs/images
"$offing" replay "$run" -o docs/images/hopper.gif
size=$(stat -c %s docs/images/hopper.gif)
[ "$size" -lt 1500000 ] || { echo "docs/images/hopper.gif: wanted at most 1.5 MB, found $size bytes" >&2; exit 1; }
