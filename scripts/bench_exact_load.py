#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exact load on a node: the imbalance and the critical path of prompts that load few experts.

    scripts/bench_exact_load.py [--wideep build/wideep] [--rounds 3]

Random weights of bench/configs/qwen3-moe-1.3b.json on 8 ranks, as many slots as experts; 16 prompts
of 512 tokens, each of three different tokens, and two tokens of each answer. Static, with online
balancing, and with exact_load: node; in turns, and each also with the perfect router. Medians over
rounds of sums over the run. Processor time of the slowest rank of every step, so ranks may share
processors.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPTS, LENGTH = 16, 512
MODES = {
    "static": "num_slots: 64\n",
    "online": "num_slots: 64\nlayer_updates_per_iter: 12\n",
    "exact load": "num_slots: 64\nlayer_updates_per_iter: 12\nexact_load: node\n",
}


def write_prompts(path):
    rng = random.Random(5)
    with open(path, "w") as file:
        for index in range(PROMPTS):
            few = rng.sample(range(100, 900), 3)
            ids = [rng.choice(few) for _ in range(LENGTH)]
            file.write(json.dumps({"task_id": index, "input_ids": ids, "output_tokens": 2}) + "\n")


def run(wideep, folder, mode, perfect):
    """Sums over a run: (excess rows / rows of prefill, critical path, that of experts) in ms."""
    settings = folder / "balancer.yaml"
    settings.write_text(MODES[mode])
    log = folder / "log"
    log.unlink(missing_ok=True)
    command = [wideep, "bench", "throughput", "--model", ROOT / "bench/configs/qwen3-moe-1.3b.json",
               "--random-weights", "--dataset", folder / "prompts.jsonl", "--ranks", "8",
               "--load-balancer", settings, "--iteration-log", log, "--warmup", "0",
               "--timeout", "300", "--json"]
    if perfect:
        command.append("--perfect-router")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    prefill = [each for each in lines if each["inflightBatchingStats"]["numCtxTokens"] >= 256]
    tokens = sum(each["inflightBatchingStats"]["numCtxTokens"] for each in prefill)
    excess = sum(each["imbalanceRatio"] * each["inflightBatchingStats"]["numCtxTokens"]
                 for each in prefill)
    return (excess / tokens, sum(each["criticalPathMS"] for each in lines),
            sum(each["criticalPathExpertsMS"] for each in lines))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wideep", default=str(ROOT / "build/wideep"))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_prompts(folder / "prompts.jsonl")
        for _ in range(options.rounds):
            for mode in MODES:
                for perfect in (False, True):
                    key = (mode, perfect)
                    found.setdefault(key, []).append(run(options.wideep, folder, mode, perfect))
    print(f"{'':<12}{'imbalance of prefill':>22}{'critical path':>16}{'perfect router':>16}"
          f"{'ratio':>8}{'experts':>11}{'perfect':>11}")
    for mode in MODES:
        own, best = ([statistics.median(each) for each in zip(*found[mode, perfect])]
                     for perfect in (False, True))
        print(f"{mode:<12}{own[0]:>22.4f}{own[1]:>13.0f} ms{best[1]:>13.0f} ms"
              f"{own[1] / best[1]:>8.3f}{own[2]:>8.0f} ms{best[2]:>8.0f} ms")
    print("goals for exact load: imbalance 0.02, ratio 1.02")


if __name__ == "__main__":
    main()
