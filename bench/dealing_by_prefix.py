#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Conversations side by side, with attention data parallelism: how much of their prompts is found.

    bench/dealing_by_prefix.py --config bench/configs/qwen3-moe-1.3b.json --wideep build/wideep --wideep old/wideep

Conversations begin with one of few system prompts, and each turn with all turns before it. With attention
data parallelism each rank has a cache of its own, so it matters which rank gets a turn. Each program is
run in turn, --runs times. Printed: the share of what another turn had computed before that was found, and the
time to the first token.
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import statistics
import tempfile
import threading
import time

from served import Server, model_name, model_options, print_table, stream

PAGE = 64


class Conversations:
    def __init__(self, url, args, seed):
        self.url, self.args, self.model = url, args, model_name(url)
        rng = random.Random(seed)
        self.systems = [[rng.randrange(10, 8000) for _ in range(args.system_tokens)] for _ in range(args.systems)]
        self.lock = threading.Lock()
        self.seconds, self.cached, self.possible = [], 0, 0

    def ask(self, tokens):
        first, answer, cached = None, [], 0
        body = {"model": self.model, "prompt": tokens, "max_tokens": self.args.answer_tokens, "temperature": 0,
                "ignore_eos": True, "stream": True, "return_token_ids": True,
                "stream_options": {"include_usage": True}}
        for seconds, event in stream(self.url + "/v1/completions", body):
            for choice in event.get("choices") or []:
                if choice.get("token_ids"):
                    first = seconds if first is None else first
                    answer += choice["token_ids"]
            if event.get("usage"):
                cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        return first, answer, cached

    def converse(self, index):
        rng = random.Random(1000 + index)
        tokens = list(self.systems[index % len(self.systems)])
        known = len(tokens) if index >= len(self.systems) else 0  # another conversation has begun so
        for _ in range(self.args.turns):
            tokens += [rng.randrange(10, 8000) for _ in range(self.args.turn_tokens)]
            seconds, answer, cached = self.ask(tokens)
            with self.lock:
                self.seconds.append(seconds)
                self.cached += cached
                self.possible += known // PAGE * PAGE
            tokens += answer
            known = len(tokens) - 1
            time.sleep(rng.uniform(0, self.args.think))

    def run(self):
        begin = time.perf_counter()
        with concurrent.futures.ThreadPoolExecutor(self.args.clients) as pool:
            list(pool.map(self.converse, range(self.args.conversations)))
        return time.perf_counter() - begin


def measure(program, args, work, seed):
    layout = pathlib.Path(work) / "layout.yaml"
    layout.write_text(f"tensor_parallel_size: {args.ranks}\nmoe_expert_parallel_size: {args.ranks}\n"
                      "enable_attention_dp: true\n")
    server = Server([program, "serve", "--port", "{port}", *model_options(args, work), "--config", str(layout),
                     *args.option], pathlib.Path(work) / "serve.log")
    try:
        load = Conversations(server.url, args, seed)
        seconds = load.run()
    finally:
        server.stop()
    return {"found": load.cached / load.possible, "first": statistics.median(load.seconds),
            "p90": statistics.quantiles(load.seconds, n=10)[-1], "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", action="append", required=True, help="a program; several are compared")
    parser.add_argument("--model", help="a directory")
    parser.add_argument("--config", help="a config.json instead, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of wideep serve; several times")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--conversations", type=int, default=24)
    parser.add_argument("--clients", type=int, default=4, help="conversations at a time")
    parser.add_argument("--systems", type=int, default=3, help="different system prompts")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--system-tokens", type=int, default=512)
    parser.add_argument("--turn-tokens", type=int, default=96)
    parser.add_argument("--answer-tokens", type=int, default=32)
    parser.add_argument("--think", type=float, default=0.3, help="seconds at most between turns")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", help="a file for all figures")
    args = parser.parse_args()
    if not (args.model or args.config):
        parser.error("expected --model or --config")
    runs = {program: [] for program in args.wideep}
    with tempfile.TemporaryDirectory() as work:
        for run in range(args.runs):
            for program in args.wideep:
                runs[program].append(measure(program, args, work, run))
    medians = {program: {key: statistics.median(run[key] for run in each) for key in each[0]}
               for program, each in runs.items()}
    print_table(["program", "found", "first token, median", "p90", "all"],
                [[program, f"{each['found']:.1%}", f"{each['first']:.3f} s", f"{each['p90']:.3f} s",
                  f"{each['seconds']:.1f} s"] for program, each in medians.items()])
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"medians": medians, "runs": runs}, indent=1))


if __name__ == "__main__":
    main()
