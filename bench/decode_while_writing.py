#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What writing a prompt cache costs those who decode.

    bench/decode_while_writing.py --wideep build/wideep --config bench/configs/qwen3-moe-1.3b.json
    bench/decode_while_writing.py --wideep build/wideep --config ... --before old/wideep
    bench/decode_while_writing.py --wideep build/wideep --model DIR --option=--ranks=2 --directory /nvme/tmp

Two servers of one model, one with a directory: in turn, requests decode while prompts that nobody knows
stream in, and the 99th percentile of the time between two tokens is taken; ratios are those of pairs.
Prompts of a CPU write some tens of megabytes a second. Another process writes --rate beside them, past the
page cache, into the same directory; printed is who has written how much.
--before: output tokens per second of `bench throughput` without a directory, beside an earlier program,
in pairs, too. The goals: p99 at most 1.03 times, tokens per second at least 0.99 times.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from served import Server, huge_pages, model_name, model_options, print_table, stream

PIECE = 4 << 20


def write_at(rate, path, ends, written):
    """Writes over a file of 1 GiB at so many bytes per second, until `ends`; `written` counts."""
    piece = huge_pages(PIECE)
    piece[:] = os.urandom(PIECE)
    flags = os.O_CREAT | os.O_WRONLY
    try:
        descriptor = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        descriptor = os.open(path, flags, 0o600)
    begin, total = time.perf_counter(), 0
    while not ends.is_set():
        ahead = total / rate - (time.perf_counter() - begin)
        if ahead > 0:
            time.sleep(min(ahead, 0.05))
            continue
        total += os.pwrite(descriptor, piece, total % (1 << 30) // PIECE * PIECE)
        with written.get_lock():
            written.value = total
    os.close(descriptor)


class Filler:
    """Makes up what the server does not write itself."""

    def __init__(self, rate, directory):
        self.ends, self.written = multiprocessing.Event(), multiprocessing.Value("q", 0)
        self.path = pathlib.Path(directory) / "filler"  # no segment: it is left alone
        self.process = multiprocessing.Process(target=write_at, args=(rate, self.path, self.ends, self.written))
        self.process.start()

    def stop(self):
        self.ends.set()
        self.process.join()
        self.path.unlink(missing_ok=True)
        return self.written.value


class Load:
    """Requests that decode, and prompts that stream in meanwhile."""

    def __init__(self, url, args, vocabulary, seed):
        self.url, self.args, self.vocabulary, self.seed = url, args, vocabulary, seed
        self.model = model_name(url)
        self.gaps, self.lock = [], threading.Lock()
        self.ends = threading.Event()

    def body(self, rng, length, max_tokens):
        return {"model": self.model, "prompt": [rng.randrange(10, self.vocabulary) for _ in range(length)],
                "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "return_token_ids": True}

    def decode(self, number):
        rng = random.Random(self.seed * 1000 + number)
        last, gaps = None, []
        for seconds, event in stream(self.url + "/v1/completions", self.body(rng, 64, self.args.decode_tokens)):
            if any(choice.get("token_ids") for choice in event.get("choices") or []):
                if last is not None:
                    gaps.append(seconds - last)
                last = seconds
        with self.lock:
            self.gaps += gaps

    def prefill(self, number):
        rng = random.Random(self.seed * 1000 + 500 + number)
        while not self.ends.is_set():
            for _ in stream(self.url + "/v1/completions", self.body(rng, self.args.prompt_tokens, 1)):
                pass

    def run(self):
        """The 99th percentile of the gaps, in seconds."""
        prefills = [threading.Thread(target=self.prefill, args=(i,)) for i in range(self.args.prompts)]
        decodes = [threading.Thread(target=self.decode, args=(i,)) for i in range(self.args.streams)]
        for thread in prefills + decodes:
            thread.start()
        for thread in decodes:
            thread.join()
        self.ends.set()
        for thread in prefills:
            thread.join()
        return statistics.quantiles(self.gaps, n=100)[98]


def measure_latency(args, model, work, vocabulary):
    pairs = []
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="pages-") as directory:
        command = [args.wideep, "serve", "--port", "{port}", *model, *args.option]
        servers = {"without": Server(command, pathlib.Path(work) / "without.log")}
        try:
            servers["with"] = Server([*command, "--prompt-cache-dir", directory, "--prompt-cache-bytes",
                                      args.prompt_cache_bytes], pathlib.Path(work) / "with.log")
            for pair in range(-1, args.pairs):  # the first one warms up
                figures = {}
                order = ["without", "with"] if pair % 2 == 0 else ["with", "without"]
                for which in order:
                    figures[which] = measure_once(args, servers[which], directory if which == "with" else None,
                                                  vocabulary, pair + 2)
                if pair < 0:
                    continue
                p99, written = figures["with"]
                pairs.append({"with": p99, "without": figures["without"][0], **written,
                              "ratio": p99 / figures["without"][0]})
                print(f"pair {pair + 1}: p99 {figures['without'][0] * 1e3:.1f} ms without, {p99 * 1e3:.1f} ms with, "
                      f"ratio {pairs[-1]['ratio']:.3f}; written {written['server'] / 1e6:.0f} MB/s by the server, "
                      f"{written['filler'] / 1e6:.0f} MB/s beside it", flush=True)
        finally:
            for server in servers.values():
                server.kill()
    return pairs


def measure_once(args, server, directory, vocabulary, seed):
    """The 99th percentile, and bytes per second that were written into the directory."""
    before, begin = server.written_bytes(), time.perf_counter()
    filler = Filler(args.rate, directory) if directory and args.rate > 0 else None
    try:
        p99 = Load(server.url, args, vocabulary, seed).run()
    finally:
        beside = filler.stop() if filler else 0
    seconds = time.perf_counter() - begin
    return p99, {"server": (server.written_bytes() - before) / seconds, "filler": beside / seconds}


def throughput(program, args, model, dataset):
    command = [program, "bench", "throughput", *model, *args.option, "--dataset", str(dataset), "--json",
               "--concurrency", "8"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)["performance"]["system_output_throughput_tok_s"]


def measure_throughput(args, model, work, vocabulary):
    rng = random.Random(7)
    dataset = pathlib.Path(work) / "data.jsonl"
    dataset.write_text("".join(json.dumps({
        "task_id": i, "input_ids": [rng.randrange(10, vocabulary) for _ in range(128)],
        "output_tokens": 96}) + "\n" for i in range(16)))
    pairs = []
    for pair in range(-1, args.pairs):
        programs = {"before": args.before, "now": args.wideep}
        order = list(programs) if pair % 2 == 0 else list(programs)[::-1]
        figures = {which: throughput(programs[which], args, model, dataset) for which in order}
        if pair < 0:
            continue
        pairs.append({**figures, "ratio": figures["now"] / figures["before"]})
        print(f"pair {pair + 1}: {figures['before']:.1f} tokens/s before, {figures['now']:.1f} now, ratio "
              f"{pairs[-1]['ratio']:.3f}", flush=True)
    return pairs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--before", help="an earlier program: compares tokens per second without a directory")
    parser.add_argument("--model", help="a directory")
    parser.add_argument("--config", help="a config.json instead, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of both programs' servers; several times")
    parser.add_argument("--directory", default=None, help="where directories are made: the disk")
    parser.add_argument("--prompt-cache-bytes", default="8G")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--rate", type=float, default=1e9,
                        help="bytes per second that are written beside the server; 0: none")
    parser.add_argument("--streams", type=int, default=4, help="requests that decode at once")
    parser.add_argument("--decode-tokens", type=int, default=200, help="of each")
    parser.add_argument("--prompts", type=int, default=1, help="prompts that stream in at once")
    parser.add_argument("--prompt-tokens", type=int, default=1024)
    parser.add_argument("--json", help="a file for all figures")
    args = parser.parse_args()
    if not (args.model or args.config):
        parser.error("expected --model or --config")
    if args.pairs < 1:
        parser.error("--pairs: expected at least 1")
    figures = {}
    with tempfile.TemporaryDirectory() as work:
        args.directory = args.directory or work
        model = model_options(args, work)
        shape = json.loads((pathlib.Path(model[1]) / "config.json").read_text())
        vocabulary = shape.get("text_config", shape)["vocab_size"]
        figures["p99"] = measure_latency(args, model, work, vocabulary)
        if args.before:
            figures["tokens_per_second"] = measure_throughput(args, model, work, vocabulary)
    rows, over = [], []
    for name, goal, is_ok in (("p99", "at most 1.03", lambda ratio: ratio <= 1.03),
                              ("tokens_per_second", "at least 0.99", lambda ratio: ratio >= 0.99)):
        if name not in figures:
            continue
        ratios = [pair["ratio"] for pair in figures[name]]
        ratio = statistics.median(ratios)
        rows.append([name, len(ratios), f"{min(ratios):.3f} to {max(ratios):.3f}", f"{ratio:.3f}", goal,
                     "ok" if is_ok(ratio) else "over"])
        if not is_ok(ratio):
            over.append(name)
    print()
    print_table(["", "pairs", "ratios", "median", "goal", ""], rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(figures, indent=1))
    if over:
        sys.exit(f"the goal is missed: {', '.join(over)}")


if __name__ == "__main__":
    main()
