#!/bin/sh
# A small grid on a real Slurm. Starts munged, slurmctld and slurmd on loopback and runs the grid as an array job. Its tables
# must equal those of the same grid run here, byte for byte. Then it cancels an array half-way and resumes it.
#
#     scripts/test_slurm.sh [OFFING]        as root; on Debian after: apt-get install slurm-wlm munge
#
# OFFING is the program to test [default: target/debug/offing]. The script writes only to a new temporary directory.
set -eu

offing=$(realpath "${1:-target/debug/offing}")
[ -x "$offing" ] || { echo "$offing: no such program; cargo build -p offing-cli makes it" >&2; exit 2; }
for tool in munged slurmctld slurmd sbatch; do
    command -v "$tool" > /dev/null || PATH=$PATH:/usr/sbin:/sbin
    command -v "$tool" > /dev/null || { echo "$tool: not found; apt-get install slurm-wlm munge" >&2; exit 2; }
done
[ "$(id -u)" = 0 ] || { echo "wanted root: slurmd starts tasks for others" >&2; exit 2; }

dir=$(mktemp -d /tmp/offing-slurm.XXXXXX)
pids=
cleanup() {
    for pid in $pids; do kill "$pid" 2> /dev/null || true; done
    wait
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# A cluster of one node, this host, reached by 127.0.0.1 alone. Ports differ from Slurm's own, so another Slurm may run.
cores=$(nproc)
host=$(hostname -s)
mkdir -p "$dir/state" "$dir/spool" "$dir/munge" "$dir/work"
chmod 711 "$dir"
dd if=/dev/urandom of="$dir/munge/key" bs=1024 count=1 2> /dev/null
chmod 700 "$dir/munge"; chmod 600 "$dir/munge/key"
cat > "$dir/slurm.conf" << CONF
ClusterName=offing
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16817
SlurmdPort=16818
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MailProg=/bin/true
SchedulerParameters=sched_interval=1,sched_min_interval=0
MinJobAge=300
KillWait=30
NodeName=$host NodeAddr=127.0.0.1 CPUs=$cores State=UNKNOWN
PartitionName=here Nodes=$host Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$dir/slurm.conf"

munged --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munge/pid" \
    --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" > "$dir/munged.out" 2>&1 &
pids="$pids $!"
for _ in $(seq 50); do [ -S "$dir/munge/socket" ] && break; sleep 0.1; done
slurmctld -D > "$dir/slurmctld.out" 2>&1 &
pids="$pids $!"
slurmd -D > "$dir/slurmd.out" 2>&1 &
pids="$pids $!"
for _ in $(seq 100); do
    state=$(sinfo -h -o %T 2> /dev/null || true)
    [ "$state" = idle ] && break
    sleep 0.3
done
[ "$state" = idle ] || { echo "Slurm does not come up: $state" >&2; tail -n 20 "$dir"/*.log "$dir"/*.out >&2; exit 1; }
echo "Slurm $(sinfo --version | cut -d' ' -f2) on $host, $cores cores"

# Four cells of some seconds each: two columns, two seeds.
cd "$dir/work"
# Fetches the simulator, unless OFFING_HOME already has it.
export OFFING_HOME="${OFFING_HOME:-$dir/home}"
"$offing" -q data make hopper-random --rows 3000 --out hopper-random.hdf5
cat > tiny.toml << 'GRID'
title = "Tiny"
about = "A tiny grid."
paper = "table1"
[profile.tiny]
datasets = ["hopper-random.hdf5"]
seeds = 2
settings = "paper"
set = [
    "model.ensemble.hidden=[16,16]", "model.ensemble.decay=[0.0,0.0,0.0]", "model.ensemble.members=3",
    "model.ensemble.elites=2", "model.ensemble.max_epochs=2", "rollout.every=50", "rollout.starts=100",
    "sac.hidden=[32,32]", "train.batch=64", "train.steps=4000", "train.evaluate_every=1000",
    "train.checkpoint_every=200", "train.episodes=2",
]
[grid]
kind = "training"
columns = [{ name = "mopo+sumo", against = "mopo" }, { name = "mopo" }]
GRID
grid() { # directory, more arguments
    at=$1; shift
    "$offing" --threads 1 reproduce tiny.toml --profile tiny --dir "$at" --out "$at-out" "$@"
}
same() {
    for ending in csv statistics.csv cells.csv curves.csv md tex html; do
        cmp "$1-out/tiny.$ending" "$2-out/tiny.$ending" || { echo "tiny.$ending differs" >&2; exit 1; }
    done
}

grid local > /dev/null
grid array --executor slurm --wait > /dev/null
same local array
echo "an array job of 4 cells: the tables equal the local ones byte for byte"

# Cancelled while the second cell runs, then submitted again: finished cells stay, interrupted ones resume.
grid halves --executor slurm --jobs 1
id=$(sed 's/.*"id":"\([0-9]*\)".*/\1/' halves-out/slurm/job.json)
for _ in $(seq 600); do
    cells=$(grid halves --list-cells --json)
    case $cells in *'"state":"done"'*'"state":"begun"'*) break ;; esac
    sleep 0.1
done
scancel "$id"
for _ in $(seq 300); do [ -z "$(squeue -h -j "$id" 2> /dev/null)" ] && break; sleep 0.2; done
grid halves --status | tee status
grep -q interrupted status || { echo "no cell was interrupted" >&2; exit 1; }
if grid halves --collect > /dev/null; then echo "it was ended half-way, yet nothing is missing" >&2; exit 1; fi
grid halves --executor slurm --wait > /dev/null
same local halves
echo "ended half-way and submitted again: the same tables"
