#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests wideep under a real Slurm on this machine: starts Slurm's daemons, runs jobs with srun and
# sbatch, and ends the daemons.
#
#   scripts/test_slurm.sh [path of wideep]
#
# One node; with WIDEEP_NODE its ranks count as two nodes. Needs root; exits with 77 and a line with
# the reason if Slurm or MPI is missing or may not run.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
wideep=$(realpath "${1:-$root/build/wideep}")
model=$root/models/reference
work=$(mktemp -d)
daemons=()

source "$root/scripts/testing.sh"
fail() { echo "failed: $*"; tail -n 20 "$work"/*.log 2>/dev/null || true; exit 1; }

clean_up() {
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do kill "${daemons[i]}" 2>/dev/null || true; done
  for ((i = ${#daemons[@]} - 1; i >= 0; --i)); do wait "${daemons[i]}" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

[[ $EUID -eq 0 ]] || skip "Slurm's daemons need root"
for tool in munged slurmctld slurmd srun sbatch; do
  command -v "$tool" >/dev/null || skip "no $tool"
done
[[ -e $(dirname "$wideep")/libwideep_mpi.so ]] || skip "this wideep is built without MPI"
[[ -e $(echo /usr/lib/*/slurm*/mpi_pmix.so) ]] || skip "this Slurm has no PMIx"

# All its files are in one directory, and it uses ports of its own.
chmod 755 "$work"
mkdir -m 700 "$work/munge" && mkdir "$work/state" "$work/spool"
dd if=/dev/urandom of="$work/munge/key" bs=128 count=1 status=none && chmod 400 "$work/munge/key"
munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge.socket" \
  --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" \
  2>"$work/munged.log" &
daemons+=($!)

host=$(hostname -s) cpus=$(nproc) port=$((20000 + $$ % 10000))
cat >"$work/slurm.conf" <<CONF
ClusterName=wideep
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge.socket
CredType=cred/munge
MpiDefault=pmix
SlurmctldPort=$port
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0
ReturnToService=2
SlurmdParameters=config_overrides
SlurmctldTimeout=30
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=$((2 * cpus))
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8
CONF
export SLURM_CONF=$work/slurm.conf
slurmctld -D -f "$SLURM_CONF" >"$work/slurmctld.log" 2>&1 & daemons+=($!)
slurmd -D -f "$SLURM_CONF" >"$work/slurmd.log" 2>&1 & daemons+=($!)
for _ in $(seq 100); do
  [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 1 ]] && break
  sleep 0.2
done
[[ $(sinfo -h -t idle -o %D 2>/dev/null) == 1 ]] ||
  { tail -n 3 "$work"/*.log; skip "Slurm's daemons do not start here"; }

arguments=(generate --model "$model" --prompt "Once upon a time" --prompt "The sea"
  --max-tokens 16 --logits-digest --json)
texts() { grep -E '"(text|logits_digest)"' "$1"; }
"$wideep" "${arguments[@]}" --ranks 1 >"$work/one" 2>"$work/one.err" || fail "one rank"

on_slurm=(timeout --kill-after=5 60 srun --ntasks=4 --overcommit)
as_node=(sh -c 'WIDEEP_NODE=$((SLURM_PROCID / 2)) exec "$@"' node)
# The ranks of both nodes are on one machine and connect over TCP.
export OMPI_MCA_btl=tcp,self OMPI_MCA_pml=ob1 OMPI_MCA_btl_tcp_if_include=lo
"${on_slurm[@]}" "${as_node[@]}" "$wideep" "${arguments[@]}" >"$work/four" 2>"$work/four.err" ||
  fail "srun: $(cat "$work/four.err")"
grep -q "^nodes  *2" "$work/four.err" || fail "not two nodes: $(cat "$work/four.err")"
cmp -s <(texts "$work/one") <(texts "$work/four") || fail "srun: other texts"
echo "srun, 2 nodes, 4 ranks: the texts and digests of one rank"

status=0
"${on_slurm[@]}" "${as_node[@]}" "$wideep" "${arguments[@]}" --ranks 8 >"$work/bad" \
  2>"$work/bad.err" || status=$?
[[ $status -eq 2 ]] || fail "a wrong number of ranks: exit code $status"
[[ $(grep -c "error: --ranks: 8 ranks are configured, but 4" "$work/bad.err") -eq 1 ]] ||
  fail "a wrong number of ranks: $(cat "$work/bad.err")"
echo "srun, a wrong number of ranks: one line, exit code 2"

if [[ -f $root/cluster/slurm/generate.sbatch ]]; then
  WIDEEP=$wideep timeout 30 sbatch --wait --ntasks=4 --overcommit \
    --output="$work/job" "$root/cluster/slurm/generate.sbatch" "${arguments[@]:1}" --ranks 4 \
    >/dev/null || fail "sbatch: $(squeue; cat "$work/job")"
  cmp -s <(texts "$work/one") <(texts "$work/job") || fail "sbatch: other texts"
  echo "sbatch cluster/slurm/generate.sbatch: the same"
fi

# Servers in the job, with and without drafts, measured at two lengths of requests and two
# concurrencies, and the tables. In the middle a server that cannot start and requests that are too
# long: their rows say why, and the sweep goes on.
EP=2 DRAFTS="0 9999 2" DRAFTER=NGram LENGTHS="160/80 9000000/40 240/40" SCALE=0.1 CONCURRENCY="1 2" \
  REQUESTS=2 PORT=$((port + 2)) WIDEEP=$wideep timeout 120 \
  sbatch --wait --ntasks=2 --overcommit --output="$work/sweep.out" \
  "$root/cluster/slurm/serving_sweep.sbatch" "$model" "$work/sweep" >/dev/null ||
  fail "the sweep: $(squeue; cat "$work/sweep.out" "$work"/sweep/*.log)"
points=0
python3 "$root/cluster/slurm/report.py" "$work/sweep" >"$work/sweep.report"
for drafts in 0 2; do
  for lengths in 16-8 24-4; do
    for concurrency in 1 2; do
      point=ep-2.drafts-$drafts.$lengths.concurrency-$concurrency
      for table in "$work/sweep.out" "$work/sweep.report"; do
        grep -qE "^$point +(serving +)?[1-9]" "$table" || fail "the sweep's table: $(cat "$table")"
      done
      # Tokens per second of one user, and of a rank.
      read -r _ all user rank _ < <(grep "^$point " "$work/sweep.out")
      awk -v a="$all" -v u="$user" -v r="$rank" -v c="$concurrency" \
        'BEGIN { exit !(r > 0.49 * a - 0.1 && r < 0.51 * a + 0.1 && u > 0.9 * a / c) }' ||
        fail "speeds: $(cat "$work/sweep.out")"
      "$wideep" bench iterations --json "$work/sweep/$point.jsonl" |
        grep -q "\"generated_tokens\": $((concurrency * 2 * ${lengths#*-}))," ||
        fail "the sweep's log at $point: $(cat "$work/sweep/$point.jsonl")"
      points=$((points + 1))
    done
  done
done
for table in "$work/sweep.out" "$work/sweep.report"; do
  grep -qE "^ep-2.drafts-9999.24-4.concurrency-2 +failed: .*does not start: error: .*9999" "$table" ||
    fail "no reason of a server: $(cat "$table")"
  grep -qE "^ep-2.drafts-2.900000-4.concurrency-1 +failed: error: no request succeeded" "$table" ||
    fail "no reason of a point: $(cat "$table")"
done
grep -q "max_draft_len: 2" "$work/sweep/ep-2.drafts-2.yaml" || fail "no drafts in the sweep"
echo "sbatch cluster/slurm/serving_sweep.sbatch: 2 servers, $points points, others failed, the tables"

# More ranks than there can be, between two numbers that can.
RANKS="1 9999 2" LENGTHS=160/40 SCALE=0.1 BATCHES=2 WIDEEP=$wideep timeout 90 \
  sbatch --wait --ntasks=1 --overcommit --output="$work/bench.out" \
  "$root/cluster/slurm/bench_sweep.sbatch" "$model" "$work/bench" --repeat 1 >/dev/null ||
  fail "the sweep of speeds: $(squeue; cat "$work/bench.out" "$work"/bench/*.log)"
python3 "$root/cluster/slurm/report.py" "$work/bench" >"$work/bench.report"
for row in "ranks1.16-4 +decode x2 +[1-9]" "ranks2.16-4 +prefill 16 +[1-9]" \
  "ranks9999.16-4 +failed: .*9999"; do
  grep -qE "^$row" "$work/bench.report" || fail "its table: $(cat "$work/bench.report")"
done
echo "sbatch cluster/slurm/bench_sweep.sbatch: 2 points and one that cannot start, the table"

# A server for prompts, one for answers, and the proxy before them, as a file of TensorRT-LLM's form
# says: two numbers of requests at once, with prompts and without. Then a job that is cancelled while
# it measures, with a prompt that the one has computed for the other: nothing is left.
#
# divide <mode> <tokens to generate> <option of sbatch>...
divide() {
  cat >"$work/$1.yaml" <<CONFIG
benchmark:
  mode: "$1"
  concurrency_list: "1,2"
  multi_round: 2
  input_length: 160
  output_length: $2
hardware: {gpus_per_node: 2, num_ctx_servers: 1, num_gen_servers: 1}
environment: {model_path: $model}
worker_config:
  ctx: {tensor_parallel_size: 1, max_num_tokens: 512}
  gen: {tensor_parallel_size: 1, max_batch_size: 8}
CONFIG
  (cd "$work" && PORT=$((port + 4)) WIDEEP=$wideep timeout 90 sbatch "${@:3}" --ntasks=2 \
    --overcommit --output="$work/$1.out" "$root/cluster/slurm/disaggregated.sbatch" \
    "$work/$1.yaml" "$work/$1-$2")
}
servers="CTX=1xTP-1|GEN=1xTP-1"
if python3 -c 'import yaml' 2>/dev/null; then
  for mode in e2e gen_only; do
    divide $mode 8 --wait >/dev/null ||
      fail "$mode: $(squeue; cat "$work/$mode.out" "$work/$mode-8"/*.log)"
    python3 "$root/cluster/slurm/report.py" "$work/$mode-8" >"$work/$mode.report"
    for concurrency in 1 2; do
      point="$servers.$mode.160-8.concurrency-$concurrency"
      grep -q "\"completed\": $((2 * concurrency))," "$work/$mode-8/$point.json" ||
        fail "$point: $(cat "$work/$mode.out")"
      for table in "$work/$mode.out" "$work/$mode.report"; do
        awk -v point="$point" '$1 == point && ($2 == "serving" ? $3 : $2) > 0 { found = 1 }
          END { exit !found }' "$table" || fail "no $point: $(cat "$table")"
      done
    done
  done
  divide e2e 20000 --parsable >"$work/divided.job"
  for _ in $(seq 300); do
    [[ -e $work/e2e-20000/$servers.e2e.160-20000.concurrency-1.part ]] && break
    sleep 0.1
  done
  sleep 1
  python3 - $((port + 4)) <<'PYTHON' || fail "no prompt was divided: $(cat "$work"/e2e-20000/*.log)"
import sys, urllib.request
text = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics", timeout=10).read().decode()
sys.exit(not any(each.startswith("wideep_router_prompts_divided_total{") and float(each.split()[-1]) > 0
                 for each in text.splitlines()))
PYTHON
  scancel "$(cat "$work/divided.job")"
  left() { squeue --noheader; pgrep -f "^$wideep " || true; ls "$work"/wideep-key-* 2>/dev/null || true; }
  for _ in $(seq 100); do [[ -z $(left) ]] && break; sleep 0.2; done
  [[ -z $(left) ]] || fail "after scancel: $(left; cat "$work/e2e.out")"
  [[ -e $work/e2e-20000/gen-0.log && -z $(ls "$work/e2e-20000"/*.json 2>/dev/null) ]] ||
    fail "not cancelled in the middle: $(cat "$work/e2e.out")"
  echo "sbatch cluster/slurm/disaggregated.sbatch: e2e and gen_only, the tables; ended by scancel"
else
  echo "sbatch cluster/slurm/disaggregated.sbatch: left out, python3 has no module yaml"
fi

# A server as a job of its own: it answers, and running requests finish after scancel.
WIDEEP=$wideep sbatch --parsable --ntasks=4 --overcommit --output="$work/serve.out" \
  "$root/cluster/slurm/serve.sbatch" "$model" --port 0 >"$work/serve.job"
for _ in $(seq 200); do grep -q "serving reference on" "$work/serve.out" 2>/dev/null && break; sleep 0.1; done
address=$(sed -n 's/.*serving reference on http:..0.0.0.0:\([0-9]*\)\/v1 .*/\1/p' "$work/serve.out")
[[ -n $address ]] || fail "no server: $(squeue; cat "$work/serve.out")"
"$wideep" bench serving --base-url "http://127.0.0.1:$address" --model reference --num-prompts 8 \
  --random-input-len 16 --random-output-len 8 --json >"$work/served" ||
  fail "a served job: $(cat "$work/served" "$work/serve.out")"
grep -q '"completed": 8' "$work/served" || fail "a served job: $(cat "$work/served")"
scancel --signal=TERM "$(cat "$work/serve.job")"
for _ in $(seq 100); do [[ -z $(squeue --noheader) ]] && break; sleep 0.2; done
[[ -z $(squeue --noheader) ]] || fail "the served job goes on: $(squeue; cat "$work/serve.out")"
grep -q "stopping: running requests have" "$work/serve.out" || fail "$(cat "$work/serve.out")"
echo "sbatch cluster/slurm/serve.sbatch: 4 ranks, 8 answers, ended by scancel"

# The same over two nodes that do without MPI: the process of the second one is killed, and the
# first goes on alone.
cat >"$work/two.yaml" <<CONFIG
tensor_parallel_size: 4
moe_expert_parallel_size: 4
enable_attention_dp: true
CONFIG
WIDEEP=$wideep MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 3)) sbatch --parsable --ntasks=2 \
  --ntasks-per-node=2 --overcommit --output="$work/nodes.out" \
  "$root/cluster/slurm/serve_nodes.sbatch" "$model" --port 0 --config "$work/two.yaml" \
  >"$work/nodes.job"
for _ in $(seq 200); do grep -q "serving reference on" "$work/nodes.out" 2>/dev/null && break; sleep 0.1; done
address=$(sed -n 's/.*serving reference on http:..0.0.0.0:\([0-9]*\)\/v1 .*/\1/p' "$work/nodes.out")
[[ -n $address ]] || fail "no server over nodes: $(squeue; cat "$work/nodes.out")"
ask() {
  "$wideep" bench serving --base-url "http://127.0.0.1:$address" --model reference \
    --num-prompts 8 --random-input-len 16 --random-output-len 8 --json >"$work/served" ||
    fail "a server over nodes: $(cat "$work/served" "$work/nodes.out")"
  grep -q '"completed": 8' "$work/served" || fail "a server over nodes: $(cat "$work/served")"
}
ask
for process in $(pgrep -f "^$wideep serve .*--nnodes 2 "); do
  if grep -qzx "SLURM_PROCID=1" "/proc/$process/environ" 2>/dev/null; then kill -KILL "$process" || true; fi
done
ask
grep -q "node 1 is lost" "$work/nodes.out" || fail "node 1 is not lost: $(cat "$work/nodes.out")"
[[ -n $(squeue --noheader) ]] || fail "the job has ended with its node"
scancel --signal=TERM "$(cat "$work/nodes.job")"
for _ in $(seq 100); do [[ -z $(squeue --noheader) ]] && break; sleep 0.2; done
[[ -z $(squeue --noheader) ]] || fail "the service goes on: $(squeue; cat "$work/nodes.out")"
echo "sbatch cluster/slurm/serve_nodes.sbatch: 2 nodes, of which one dies, 16 answers"
