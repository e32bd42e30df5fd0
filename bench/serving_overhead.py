#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of serving over HTTP: output tokens per second of `wideep bench serving` against
`wideep serve`, streamed token by token, beside `wideep bench throughput` in process, on the same
dataset at the same concurrency, in turn. Medians over rounds.

    bench/serving_overhead.py --wideep build/wideep                       # models/reference
    bench/serving_overhead.py --wideep build/wideep --config bench/configs/qwen3-moe-1.3b.json

Clients run on the same machine, so what they take of its cores counts as the server's.
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def shape_directory(config, directory):
    """Writes config.json and a tokenizer with a text for each of the shape's tokens."""
    shape = json.loads(pathlib.Path(config).read_text())
    tokenizer = json.loads((ROOT / "models/reference/tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ids = set(vocabulary.values()) | {each["id"] for each in tokenizer.get("added_tokens", [])}
    for token in range(max(ids) + 1, shape["vocab_size"]):
        vocabulary[f"token{token}"] = token
    (directory / "config.json").write_text(json.dumps(shape))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    return directory


def write_dataset(path, args, vocabulary):
    rng = random.Random(1)
    lines = [{"task_id": i, "input_ids": [rng.randrange(100, vocabulary) for _ in range(args.input)],
              "output_tokens": rng.randint(args.output // 2, args.output * 3 // 2)} for i in range(args.requests)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Server:
    def __init__(self, command, log):
        self.log = log
        self.process = subprocess.Popen(command, stderr=log.open("w"))

    def url(self):
        for _ in range(600):
            found = re.search(r"http://127.0.0.1:\d+", self.log.read_text())
            if found:
                return found[0]
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit(f"the server does not start:\n{self.log.read_text()}")

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def run_json(command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)


def measure(args, work):
    model = shape_directory(args.config, work) if args.config else ROOT / "models/reference"
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    dataset = work / "data.jsonl"
    write_dataset(dataset, args, vocabulary)
    run = ["--model", str(model), "--ranks", str(args.ranks)] + (["--random-weights"] if args.config else [])
    server = Server([args.wideep, "serve", "--port", "0", "--served-model-name", "m", *run], work / "serve.log")
    ratios, served, in_process = [], [], []
    try:
        clients = [args.wideep, "bench", "serving", "--base-url", server.url(), "--model", "m", "--json",
                   "--dataset", str(dataset), "--num-prompts", str(args.requests),
                   "--max-concurrency", str(args.concurrency)]
        direct = [args.wideep, "bench", "throughput", *run, "--dataset", str(dataset), "--json",
                  "--concurrency", str(args.concurrency)]
        run_json(clients)  # to warm up
        for _ in range(args.rounds):
            in_process.append(run_json(direct)["performance"]["system_output_throughput_tok_s"])
            served.append(run_json(clients)["output_tokens_per_second"])
            ratios.append(served[-1] / in_process[-1])
            print(f"in process {in_process[-1]:8.1f}   over HTTP {served[-1]:8.1f}   ratio {ratios[-1]:.3f}",
                  flush=True)
    finally:
        server.stop()
    name = pathlib.Path(args.config).stem if args.config else "models/reference"
    print(f"{name}: {args.requests} requests of {args.input} + {args.output} tokens, {args.concurrency} at once, "
          f"{args.ranks} ranks; medians of {args.rounds} rounds: in process {statistics.median(in_process):.1f}, "
          f"over HTTP {statistics.median(served):.1f} output tokens/s, ratio {statistics.median(ratios):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default=str(ROOT / "build/wideep"))
    parser.add_argument("--config", help="a config.json, with random weights; default: models/reference")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--input", type=int, default=64)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    with tempfile.TemporaryDirectory() as work:
        measure(parser.parse_args(), pathlib.Path(work))


if __name__ == "__main__":
    main()
