#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long a GGUF file takes to load, beside safetensors of about the same bytes, in turn.

    bench/gguf_loading.py --wideep build/wideep --model model-q4_k.gguf --to int4
    bench/gguf_loading.py --wideep build/wideep --model model-q8_0.gguf --to int8 --rounds 9

`wideep quantize` writes the directory of safetensors. Then `wideep bench load` runs for one and the
other in turn, files in the page cache, so that a machine whose speed changes shows both the same
face. Printed are medians of the rounds' times, and the median of the rounds' ratios, GGUF over
safetensors, for each byte of the files.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile


def load(options, model):
    result = subprocess.run([options.wideep, "bench", "load", "--model", model, "--threads", str(options.threads),
                             "--repeat", "1", "--json"], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    report = json.loads(result.stdout)
    return {"gb": report["file_bytes"] * 1e-9, "packed_gb": report["packed_bytes"] * 1e-9,
            **report["rounds"][0]}


def print_rounds(rounds, options):
    first = rounds[0]
    for name in first:
        gb, packed = first[name]["gb"], first[name]["packed_gb"]
        median = {key: statistics.median(each[name][key] for each in rounds)
                  for key in ("read_seconds", "touch_seconds", "load_seconds")}
        print(f"{name:<12}{gb:.2f} GB, {packed:.2f} GB packed: load {median['load_seconds']:.3f} s, reading "
              f"{median['read_seconds']:.3f} s, touching {median['touch_seconds']:.3f} s")
    ratios = sorted(each["gguf"]["load_seconds"] / each["gguf"]["gb"] * each["safetensors"]["gb"]
                    / each["safetensors"]["load_seconds"] for each in rounds)
    print(f"a byte of GGUF / a byte of safetensors: {statistics.median(ratios):.2f} (lowest {ratios[0]:.2f}, "
          f"highest {ratios[-1]:.2f}; goal: at most 1.30), {len(rounds)} rounds, {options.threads} threads, "
          f"load of the machine {os.getloadavg()[0]:.1f}")


def measure(options, directory):
    models = {"gguf": options.model, "safetensors": directory}
    for model in models.values():
        load(options, model)  # into the page cache
    rounds = [{name: load(options, model) for name, model in models.items()} for _ in range(options.rounds)]
    print_rounds(rounds, options)
    return rounds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep", help="the program; default: %(default)s")
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--to", required=True, help="the format of the safetensors, with about as many bits")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=pathlib.Path(options.model).parent) as directory:
        safetensors = str(pathlib.Path(directory) / "model")
        quantize = [options.wideep, "quantize", "--model", options.model, "--to", options.to,
                    "--output", safetensors, "--no-evaluation"]
        result = subprocess.run(quantize, capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(result.stderr.strip())
        rounds = measure(options, safetensors)
    if options.json:
        options.json.write_text(json.dumps(rounds, indent=2) + "\n")


if __name__ == "__main__":
    main()
