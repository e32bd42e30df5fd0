#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `wideep serve` with another server of the same model: that of transformers.

    bench/compare_serving.py --wideep build/wideep

installs transformers, torch and what its server needs from PyPI into a virtual environment (once;
`--python` names an interpreter that has them), starts each server in turn on models/reference, sends
both the same texts with `wideep bench serving`, and prints both tables with versions and date.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/reference"
PORT = 8913


def write_dataset(path, args):
    """Texts from the guides, because transformers' server does not accept token ids."""
    words = " ".join(page.read_text() for page in sorted(ROOT.glob("docs/*.md"))).split()
    with path.open("w") as file:
        for i in range(args.requests):
            text = " ".join(words[i * args.words:(i + 1) * args.words])
            file.write(json.dumps({"task_id": i, "prompt": text, "output_tokens": args.output}) + "\n")


def peer_python(args):
    if args.python:
        return args.python
    python = pathlib.Path(args.venv) / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", args.venv], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "torch", "transformers[serving]", "accelerate"],
                       check=True)
    return str(python)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False


def measure(name, command, model, args, dataset, log):
    environment = dict(os.environ, HF_HUB_OFFLINE="1")
    server = subprocess.Popen(command, stdout=log.open("w"), stderr=subprocess.STDOUT, env=environment)
    try:
        for _ in range(1200):
            if answers(f"http://127.0.0.1:{PORT}/health"):
                break
            if server.poll() is not None:
                sys.exit(f"{name} does not start:\n{log.read_text()}")
            time.sleep(0.1)
        clients = [args.wideep, "bench", "serving", "--base-url", f"http://127.0.0.1:{PORT}", "--model", model,
                   "--dataset", str(dataset), "--max-concurrency", str(args.concurrency), "--stop-at-eos",
                   "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "90,99", "--num-prompts", str(args.requests)]
        subprocess.run(clients[:-1] + ["2"], check=True, capture_output=True)  # to warm up
        return subprocess.run(clients, check=True, capture_output=True, text=True).stdout
    finally:
        server.terminate()
        server.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default=str(ROOT / "build/wideep"))
    parser.add_argument("--python", help="an interpreter with transformers[serving], torch and accelerate")
    parser.add_argument("--venv", default="build/peer-venv")
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--output", type=int, default=64)
    args = parser.parse_args()
    python = peer_python(args)
    ask = "import torch, transformers; print(transformers.__version__, torch.__version__)"
    peer, torch = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.split()[-2:]
    version = subprocess.run([args.wideep, "--version"], check=True, capture_output=True, text=True).stdout.strip()
    servers = [
        (f"wideep {re.sub(r'^[^0-9]*', '', version)} (--ranks 2)",
         [args.wideep, "serve", "--model", str(MODEL), "--ranks", "2", "--port", str(PORT)], "reference"),
        (f"transformers {peer} (torch {torch}, cpu)",
         [python, "-m", "transformers.cli.transformers", "serve", str(MODEL), "--device", "cpu", "--port", str(PORT)],
         str(MODEL)),
    ]
    with tempfile.TemporaryDirectory() as work:
        dataset = pathlib.Path(work) / "data.jsonl"
        write_dataset(dataset, args)
        print(f"{datetime.date.today()}: {args.requests} texts of {args.words} words, up to {args.output} tokens, "
              f"{args.concurrency} at once")
        for name, command, model in servers:
            table = measure(name, command, model, args, dataset, pathlib.Path(work) / "log")
            print(f"\n{name}\n\n{table}", flush=True)


if __name__ == "__main__":
    main()
