#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/faults.md that need no random kills.

    bench/fault_figures.py overhead        # what recovery costs where nothing dies
    bench/fault_figures.py scale           # other numbers of ranks under load
    bench/fault_figures.py kill --config bench/configs/qwen3-moe-1.3b.json
                                           # the silence after a kill, and how much of it is prefill

overhead: two servers, with --on-rank-loss recover and fail, get the same load in turn; medians of the
ratios of each pair. scale: 32 streams that begin again when they end, while the number of ranks changes;
tokens per second with each number, and the longest silence of a stream around each change. kill: as
bench/kill_timeline.py, of any shape; the time to prefill as many tokens as were lost is measured
afterwards, by prompts of the same lengths that are asked for at once.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import random
import selectors
import signal
import statistics
import tempfile
import time
import types
import urllib.parse
import urllib.request

from kill_timeline import Stream, process_named
from serving_overhead import ROOT, Server, run_json, shape_directory, write_dataset


class TokenStream(Stream):
    """A stream of tokens, whose prompt is given as ids."""

    def __init__(self, url, prompt, tokens, seed=1):
        super().__init__(url, seed, tokens, prompt)
        self.prompt = prompt


@contextlib.contextmanager
def served(args, work, *options):
    model = shape_directory(args.config, work) if args.config else ROOT / "models/reference"
    command = [args.wideep, "serve", "--port", "0", "--served-model-name", "m", "--model", str(model),
               "--ranks", str(args.ranks), "--threads-per-rank", "1",
               *(["--random-weights"] if args.config else []), *options]
    log = work / f"serve{len(list(work.glob('serve*')))}.log"
    server = Server(command, log)
    try:
        yield server
    finally:
        server.stop()


def receive(selector, seconds=0.001):
    for key, _ in selector.select(seconds):
        key.data.read()
        if key.data.is_done:
            selector.unregister(key.fileobj)


def random_prompt(rng, length):
    return [rng.randrange(100, 900) for _ in range(length)]


# ---- nothing dies ----

def overhead(args, work):
    dataset = work / "data.jsonl"
    write_dataset(dataset, types.SimpleNamespace(input=64, output=96, requests=args.requests), 900)
    ratios = {"tokens/s": [], "p99 of inter-token latency": [], "median of inter-token latency": []}
    with served(args, work, "--on-rank-loss", "recover") as recover, \
            served(args, work, "--on-rank-loss", "fail") as fail:
        def run(server):
            return run_json([args.wideep, "bench", "serving", "--base-url", server.url(), "--model", "m", "--json",
                             "--dataset", str(dataset), "--num-prompts", str(args.requests),
                             "--max-concurrency", str(args.streams)])
        run(recover), run(fail)  # to warm up
        for pair in range(args.pairs):
            first, second = (recover, fail) if pair % 2 == 0 else (fail, recover)
            results = {id(server): run(server) for server in (first, second)}
            with_it, without = results[id(recover)], results[id(fail)]
            ratios["tokens/s"].append(with_it["output_tokens_per_second"] / without["output_tokens_per_second"])
            for name, key in (("p99", "p99"), ("median", "median")):
                ratios[f"{name} of inter-token latency"].append(
                    with_it["itl_seconds"][key] / without["itl_seconds"][key])
            print(f"pair {pair}: " + ", ".join(f"{name} {values[-1]:.3f}" for name, values in ratios.items()),
                  flush=True)
    print(f"recover ÷ fail, medians of {args.pairs} pairs, {args.ranks} ranks, {args.streams} streams:")
    for name, values in ratios.items():
        low, _, high = statistics.quantiles(values, n=4)
        print(f"  {name:30} {statistics.median(values):.3f}   quartiles {low:.3f} to {high:.3f}")


# ---- other numbers of ranks ----

def resize(url, num_ranks):
    body = json.dumps({"new_data_parallel_size": num_ranks}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/scale_elastic_ep", body)) as reply:
        return reply.status


class Load:
    """Streams that begin again when they end."""

    def __init__(self, url, num_streams, tokens):
        self.url, self.tokens, self.rng = urllib.parse.urlparse(url), tokens, random.Random(5)
        self.selector, self.times, self.silences, self.failures = selectors.DefaultSelector(), [], [], 0
        for _ in range(num_streams):
            self.begin()

    def begin(self):
        stream = TokenStream(self.url, random_prompt(self.rng, 24), self.tokens + self.rng.randrange(40))
        self.selector.register(stream.socket, selectors.EVENT_READ, stream)

    def run_until(self, end):
        while time.time() < end:
            for key, _ in self.selector.select(0.001):
                stream = key.data
                before = len(stream.times)
                stream.read()
                self.times += stream.times[before:]
                self.silences += list(zip(stream.times[max(before - 1, 0):], stream.times[max(before, 1):]))
                if stream.is_done:
                    self.failures += not stream.is_whole
                    self.selector.unregister(stream.socket)
                    stream.socket.close()
                    self.begin()

    def rate(self, begin, end):
        return sum(begin <= at < end for at in self.times) / (end - begin)

    def longest_silence(self, begin, end):
        return max((b - a for a, b in self.silences if b > begin and a < end), default=0.0)


def scale(args, work):
    import concurrent.futures
    small, large = args.ranks // 2, args.ranks
    rates, silences, ratios = {small: [], large: []}, [], []
    with served(args, work, "--start-ranks", str(small)) as server, \
            concurrent.futures.ThreadPoolExecutor(1) as others:
        load = Load(server.url(), args.streams, args.tokens)
        load.run_until(time.time() + 4)
        begin = time.time()
        load.run_until(begin + args.seconds)
        rates[small].append(load.rate(begin, begin + args.seconds))
        before = rates[small][0]
        usual = load.longest_silence(begin, begin + args.seconds)
        for _ in range(args.rounds):
            for size in (large, small):
                changed = time.time()
                call = others.submit(lambda: (resize(server.url(), size), time.time()))
                while not call.done():
                    load.run_until(time.time() + 0.02)
                status, done = call.result()
                load.run_until(done + 1)
                silences.append(load.longest_silence(changed, done + 0.3))
                during = load.rate(changed, done + 1)
                begin = time.time()
                load.run_until(begin + args.seconds)
                rates[size].append(load.rate(begin, begin + args.seconds))
                ratios.append(during / min(before, rates[size][-1]))
                print(f"to {size} ranks: status {status} after {done - changed:.3f} s, longest silence "
                      f"{silences[-1]:.3f} s; tokens/s {before:.0f} before, {during:.0f} around the change, "
                      f"{rates[size][-1]:.0f} after", flush=True)
                before = rates[size][-1]
    print(f"{small} → {large} → {small} ranks, {args.rounds} times, {args.streams} streams: {load.failures} failed; tokens/s "
          f"{statistics.median(rates[small]):.0f} with {small}, {statistics.median(rates[large]):.0f} with {large} "
          f"(medians); around a change, of what it was before or is after, whichever is less: median "
          f"{statistics.median(ratios):.2f}, least {min(ratios):.2f}; longest silence of a stream: median {statistics.median(silences):.3f} s, most {max(silences):.3f} s "
          f"(without a change {usual:.3f} s)")


# ---- a kill, and the prefill that it costs ----

def kill(args, work):
    rng = random.Random(3)
    prompts = [random_prompt(rng, args.input) for _ in range(args.streams)]
    with served(args, work) as server:
        url = urllib.parse.urlparse(server.url())
        results = []
        undisturbed = play(url, prompts, args)
        for round in range(args.rounds):
            victim = f"wideep-rank-{1 + round % (args.ranks - 1)}"
            before = replayed(server)
            streams = play(url, prompts, args, lambda: os.kill(process_named(server, victim), signal.SIGKILL))
            if [each.text for each in streams] != [each.text for each in undisturbed]:
                raise SystemExit("texts differ from those of the undisturbed run")
            count = replayed(server) - before
            silence = max(b - a for each in streams for a, b in zip(each.times, each.times[1:]))
            usual = max(b - a for each in undisturbed for a, b in zip(each.times, each.times[1:]))
            # As long as they were: prompt and tokens at the time of the kill, of as many as were replayed.
            lengths = [len(each.prompt) + sum(at < streams.killed for at in each.times) for each in streams]
            lost = math.ceil(statistics.mean(lengths))
            prefill = time_to_prefill(url, [random_prompt(rng, lost) for _ in range(count)])
            results.append((silence, prefill))
            print(f"{victim}: {count} requests of {lost} tokens replayed; longest silence {silence:.3f} s (without a "
                  f"kill {usual:.3f} s), of which {prefill:.3f} s to prefill them", flush=True)
    beyond = [silence - prefill for silence, prefill in results]
    print(f"{args.ranks} ranks, {args.streams} streams, {args.rounds} kills: longest silence median "
          f"{statistics.median(each[0] for each in results):.3f} s, beyond the prefill of the lost tokens median "
          f"{statistics.median(beyond):.3f} s, most {max(beyond):.3f} s")


class Streams(list):
    killed = 0.0


def play(url, prompts, args, strike=None):
    selector, streams = selectors.DefaultSelector(), Streams()
    for number, prompt in enumerate(prompts):
        streams.append(TokenStream(url, prompt, args.tokens, number))
        selector.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])
    while not all(len(each.times) >= args.tokens // 2 for each in streams):
        receive(selector)
    streams.killed = time.time()
    if strike is not None:
        strike()
    while selector.get_map():
        receive(selector)
    return streams


def replayed(server):
    metrics = urllib.request.urlopen(f"{server.url()}/metrics").read().decode()
    return int(next(line.split()[1] for line in metrics.splitlines()
                    if line.startswith("wideep_requests_replayed_total ")).split(".")[0])


def time_to_prefill(url, prompts):
    selector, begin = selectors.DefaultSelector(), time.time()
    for prompt in prompts:
        stream = TokenStream(url, prompt, 1)
        selector.register(stream.socket, selectors.EVENT_READ, stream)
    while selector.get_map():
        receive(selector)
    return time.time() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "scale", "kill"])
    parser.add_argument("--wideep", default=str(ROOT / "build/wideep"))
    parser.add_argument("--config", help="a config.json, with random weights; default: models/reference")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--requests", type=int, default=128, help="overhead: of each run")
    parser.add_argument("--rounds", type=int, default=5, help="scale, kill: how often")
    parser.add_argument("--seconds", type=float, default=4, help="scale: with each number of ranks")
    parser.add_argument("--input", type=int, default=48, help="kill: tokens of a prompt")
    parser.add_argument("--tokens", type=int, default=120, help="of each stream")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        {"overhead": overhead, "scale": scale, "kill": kill}[args.what](args, pathlib.Path(work))


if __name__ == "__main__":
    main()
