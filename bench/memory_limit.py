#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A model larger than the memory that a server may use: wideep, llama.cpp and ik_llama.cpp in turn.

    bench/memory_limit.py --wideep build/wideep --model flat=F.gguf --model skewed=S.gguf \\
        --packed-cache /ssd/packed --llama-server llama.cpp/llama-server --ik-server ik/llama-server

needs root, for a control group of memory (version 1 or 2) with a limit, in which each server runs
alone, and the packages gguf and numpy. All run the same file, with as many threads. random_gguf.py
--served --zipf A writes such files.

The limit is the same for all: the file's tensors but the experts, a share (--shares) of its experts,
and --allowance for the program, its cache of keys and values and its buffers. Pages of files that the
kernel keeps for a server count, as they do in a machine with so little memory. wideep's --expert-memory
is what its own dense weights and the allowance leave. llama.cpp maps the file and leaves the rest to
the kernel (--no-repack: repacked weights would be copies that must stay); ik_llama.cpp does too, with
--prefetch-experts. What a page that is missing costs them depends on how much the kernel reads with it,
which is printed: with --read-ahead 128 as much as it does unless somebody has set it. Share 1 is without
a limit. Before each server starts the kernel forgets all files.

A server answers a request that warms up (--settle tokens), then one that is measured, each with another
prompt of random tokens, greedily: prefill is its tokens per second until the first token comes, decode the last
--generate tokens per second, after --settle others. Figures are medians over --rounds, in which all
take turns, with a new start of each. GB are what the server's processes have read from disks.

The bound is that of a program that overlaps all reading with all computing: the longer of the same
engine's time with everything in memory and of what it has read ÷ what the disk gives to reads of 1 MiB,
eight at a time, past the page cache, measured in each round.

With --popularity: how often the most popular experts are chosen, as wideep's own statistics say.
"""

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from served import Server, huge_pages, print_table, stream

PIECE = 1 << 20
CONTEXT = 1024  # tokens of a prompt and its answer

# Of a model: its file, and how many bytes of its tensors are experts and are not.
Model = collections.namedtuple("Model", "name path experts dense")


class MemoryLimit:
    """A control group whose processes may use so many bytes, pages of files included; None: any number."""

    def __init__(self, limit):
        root = pathlib.Path("/sys/fs/cgroup")
        self.is_old = (root / "memory").is_dir()
        self.path = (root / "memory" if self.is_old else root) / f"wideep-bench-{os.getpid()}"
        if not self.is_old and "memory" not in (root / "cgroup.subtree_control").read_text().split():
            (root / "cgroup.subtree_control").write_text("+memory")
        self.path.mkdir(exist_ok=True)
        if limit is not None:
            (self.path / ("memory.limit_in_bytes" if self.is_old else "memory.max")).write_text(str(limit))
        if (self.path / "memory.swap.max").exists():
            (self.path / "memory.swap.max").write_text("0")

    def command(self, command):
        """Of a process that enters the group before it begins."""
        return ["sh", "-c", f'echo $$ >{self.path}/cgroup.procs && exec "$@"', "sh", *command]

    def usage(self):
        """The most bytes so far, those of programs and those of files now, and how many processes were killed."""
        stat = self.pairs("memory.stat")
        if self.is_old:
            most, anonymous, files = self.number("memory.max_usage_in_bytes"), stat["rss"], stat["cache"]
            killed = self.pairs("memory.oom_control").get("oom_kill", 0)
        else:
            most, anonymous, files = self.number("memory.peak"), stat["anon"], stat["file"]
            killed = self.pairs("memory.events")["oom_kill"]
        return {"most": most, "anonymous": anonymous, "files": files, "killed": killed}

    def number(self, name):
        path = self.path / name
        return int(path.read_text()) if path.exists() else None  # memory.peak is of Linux 5.19

    def pairs(self, name):
        lines = (line.split() for line in (self.path / name).read_text().splitlines())
        return {key: int(value) for key, value in lines}

    def remove(self):
        for _ in range(100):
            try:
                self.path.rmdir()
                return
            except OSError:  # processes are still ending
                time.sleep(0.1)


def forget_files():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")


class ReadAhead:
    """How many KiB the kernel reads at once of a mapped file on the disk of a path: set for a while, if given."""

    def __init__(self, path, kib):
        device = path.stat().st_dev
        disk = pathlib.Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
        queue = next((each / "queue" for each in (disk, disk.parent) if (each / "queue").is_dir()), None)
        self.setting = queue and queue / "read_ahead_kb"
        self.before = self.kib = int(self.setting.read_text()) if self.setting else None
        if kib is not None and not self.setting:
            raise SystemExit(f"--read-ahead: {path}: lies on no disk of its own")
        self.set(kib)

    def set(self, kib):
        if kib is not None and kib != self.kib:
            self.setting.write_text(str(kib))
            self.kib = kib


def disk_bandwidth(path):
    """Bytes per second of a file's pieces, in an order of their own, for a second and a half."""
    count = path.stat().st_size // PIECE
    order = random.Random(1).sample(range(count), count)
    end = time.perf_counter() + 1.5

    def read(first):
        descriptor, into, done = os.open(path, os.O_RDONLY | os.O_DIRECT), huge_pages(PIECE), 0
        for piece in order[first::8]:
            if time.perf_counter() > end:
                break
            done += os.preadv(descriptor, [into], piece * PIECE)
        os.close(descriptor)
        return done

    begin = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(8) as readers:
        total = sum(readers.map(read, range(8)))
    return total / (time.perf_counter() - begin)


class Wideep:
    name = "wideep"

    def __init__(self, args):
        self.args = args
        self.dense = {}  # bytes, by model

    def prepare(self, model):
        """Packs its weights, once. The file that experts are read from."""
        self.run("pack", "--model", model.path, "--output", self.args.packed_cache)
        plan = self.doctor(model)
        packed = next(each for each in plan["packed_weights"]["files"]
                      if each["name"].startswith(model.path.name) and each["state"] == "finished")
        self.dense[model.name] = plan["model"]["dense_weights_bytes"]
        return pathlib.Path(self.args.packed_cache) / packed["name"] / "records"

    def run(self, *command):
        result = subprocess.run([self.args.wideep, *map(str, command)], capture_output=True, text=True)
        if result.returncode != 0:
            raise SystemExit(f"wideep {command[0]}: {result.stderr[-2000:]}")
        return result.stdout

    def doctor(self, model):
        return json.loads(self.run("doctor", "--model", model.path, "--packed-cache", self.args.packed_cache,
                                   "--json"))

    def command(self, model, limit):
        budget = []
        if limit is not None:
            budget = ["--expert-memory", str(limit - self.args.allowance - self.dense[model.name])]
        return [self.args.wideep, "serve", "--model", str(model.path), "--port", "{port}", "--threads-per-rank",
                str(self.args.threads), "--max-batch-size", "1", "--context", str(CONTEXT), "--packed-cache",
                self.args.packed_cache, *budget]

    def request(self, model, prompt, tokens):
        return "/v1/completions", {"model": model.path.name, "prompt": prompt, "max_tokens": tokens, "stream": True,
                                   "ignore_eos": True, "temperature": 0}

    def text(self, event):
        return "".join(choice["text"] for choice in event.get("choices", []))

    def popularity(self, model, work):
        """Shares of the choices that go to the most popular quarter and half of the experts, of tokens that follow
        those that say which these are."""
        rng = random.Random(self.args.seed)
        data, statistic = work / "popularity.jsonl", work / f"popularity.{model.name}"
        with data.open("w") as file:
            for task in range(8):
                file.write(json.dumps({"task_id": task, "input_ids": self.args.prompt_of(rng),
                                       "output_tokens": 128}) + "\n")
        self.run("bench", "latency", "--model", model.path, "--packed-cache", self.args.packed_cache,
                 "--dataset", data, "--warmup", "0", "--expert-statistic-path", statistic,
                 "--expert-statistic-iter-range", "0-1000")
        report = json.loads(self.run("balance", "cache", "--stats", statistic, "--experts-in-memory", "0.25,0.5",
                                     "--json"))
        return {each["experts_in_memory"]: each["hit_rate"]["fixed"] for each in report["budgets"]}


class LlamaCpp:
    name = "llama.cpp, mapped"
    options = ["--no-repack", "--fit", "off", "--cache-ram", "0"]

    def __init__(self, args, program):
        self.args, self.program = args, program

    def prepare(self, model):
        pass

    def command(self, model, limit):
        return [self.program, "-m", str(model.path), "--host", "127.0.0.1", "--port", "{port}", "-np", "1", "-c",
                str(CONTEXT), "-t", str(self.args.threads), *self.options]

    def request(self, model, prompt, tokens):
        return "/completion", {"prompt": prompt, "n_predict": tokens, "stream": True, "ignore_eos": True,
                               "temperature": 0, "cache_prompt": False}

    def text(self, event):
        return event.get("content", "")


class IkLlamaCpp(LlamaCpp):
    name = "ik_llama.cpp --prefetch-experts"
    options = ["--prefetch-experts"]


def warm_up(args, engine, model, server):
    path, body = engine.request(model, args.prompt_of(args.rng), args.settle)
    for _ in stream(server.url + path, body):
        pass


def ask(args, engine, model, server):
    """Seconds and bytes read of the prompt, and of each of the last tokens; and how many texts differ."""
    tokens = args.settle + args.generate
    path, body = engine.request(model, args.prompt_of(args.rng), tokens)
    marks = [(0.0, server.read_bytes())]
    texts = []
    for seconds, event in stream(server.url + path, body):
        if not (text := engine.text(event)):
            continue
        texts.append(text)
        if len(texts) in (1, args.settle):
            marks.append((seconds, server.read_bytes()))
        last = seconds
    if len(texts) < 0.95 * tokens:
        raise SystemExit(f"{engine.name}: {tokens} tokens were asked for, {len(texts)} came")
    marks.append((last, server.read_bytes()))
    return {"prefill_seconds": marks[1][0], "prefill_bytes": marks[1][1] - marks[0][1],
            "decode_seconds": (marks[3][0] - marks[2][0]) / (len(texts) - args.settle),
            "decode_bytes": (marks[3][1] - marks[2][1]) / (len(texts) - args.settle),
            "different_texts": len(set(texts)) / len(texts)}


def measure(args, engine, model, limit):
    group = MemoryLimit(limit)
    forget_files()
    begin = time.perf_counter()
    log = args.work / "server.log"
    try:
        server = Server(group.command(engine.command(model, limit)), log)
    except SystemExit:
        group.remove()
        raise
    start = time.perf_counter() - begin
    try:
        warm_up(args, engine, model, server)
        result = ask(args, engine, model, server)
        memory = group.usage()
    finally:
        server.stop()
        group.remove()
    experts = re.findall(r"experts: (.* waited for)", log.read_text(errors="replace"))
    if memory["killed"] or (limit is not None and memory["most"] is not None and memory["most"] > limit):
        raise SystemExit(f"{engine.name}: exceeds {limit} bytes: {memory}")
    return {"model": model.name, "limit": limit, "engine": engine.name, "start_seconds": start, **result,
            "memory": memory, "experts": experts}


def read_model(text):
    import gguf

    name, _, path = text.partition("=")
    sizes = collections.Counter()
    for tensor in gguf.GGUFReader(path).tensors:
        sizes["_exps" in tensor.name] += int(tensor.n_bytes)
    return Model(name, pathlib.Path(path), sizes[True], sizes[False])


def limit_of(args, model, share):
    return None if share == 1 else model.dense + int(share * model.experts) + args.allowance


def run_rounds(args, models, engines):
    results = []
    for round_idx in range(args.rounds):
        for model in models:
            bandwidth = disk_bandwidth(args.records[model.name])
            for share in args.shares:
                for engine in engines:
                    result = measure(args, engine, model, limit_of(args, model, share))
                    results.append({"round": round_idx, "share": share, "bandwidth": bandwidth, **result})
                    print(json.dumps(results[-1]), flush=True)
    return results


def median_of(results, model, share, engine):
    chosen = [each for each in results
              if (each["model"], each["share"], each["engine"]) == (model.name, share, engine.name)]
    keys = ("prefill_seconds", "prefill_bytes", "decode_seconds", "decode_bytes", "bandwidth", "different_texts")
    return {key: statistics.median(each[key] for each in chosen) for key in keys} | {
        f"memory {key}": max(each["memory"][key] or 0 for each in chosen) for key in ("most", "anonymous")}


def summary(args, results, models, engines):
    rows = []
    for model in models:
        for share in args.shares:
            for engine in engines:
                here, whole = (median_of(results, model, each, engine) for each in (share, 1.0))
                row = {"model": model.name, "share": share, "limit": limit_of(args, model, share),
                       "engine": engine.name, **here}
                for part, tokens in (("prefill", args.prompt), ("decode", 1)):
                    seconds = here[part + "_seconds"]
                    row[part] = tokens / seconds
                    bound = max(whole[part + "_seconds"], here[part + "_bytes"] / here["bandwidth"])
                    row[part + "_bound"] = tokens / bound
                rows.append(row)
    return rows


def print_summary(rows):
    of_bound = lambda row, part: f"{row[part]:.2f} ({row[part] / row[part + '_bound']:.2f} of the bound)"
    print_table(["model", "experts", "limit GB", "engine", "decode/s", "MB a token", "prefill/s", "GB of it",
                 "most GB", "anonymous", "disk GB/s"],
                [[row["model"], f"{100 * row['share']:.0f} %",
                  "none" if row["limit"] is None else f"{row['limit'] / 1e9:.2f}", row["engine"],
                  of_bound(row, "decode"), f"{row['decode_bytes'] / 1e6:.1f}", of_bound(row, "prefill"),
                  f"{row['prefill_bytes'] / 1e9:.2f}", f"{row['memory most'] / 1e9:.2f}",
                  f"{row['memory anonymous'] / 1e9:.2f}", f"{row['bandwidth'] / 1e9:.2f}"] for row in rows])


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", required=True)
    parser.add_argument("--model", required=True, action="append", metavar="NAME=FILE.gguf")
    parser.add_argument("--packed-cache", required=True, help="a directory on the disk that has the files, too")
    parser.add_argument("--llama-server", help="llama.cpp's")
    parser.add_argument("--ik-server", help="ik_llama.cpp's")
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5, 0.25])
    parser.add_argument("--allowance", type=int, default=160, help="MB beside the weights")
    parser.add_argument("--read-ahead", type=int, metavar="KIB",
                        help="of the disk, while this runs (default: as it is set; Linux sets 128)")
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--settle", type=int, default=64, help="tokens of an answer before decode is measured")
    parser.add_argument("--generate", type=int, default=128)
    parser.add_argument("--vocabulary", type=int, default=32768)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--popularity", action="store_true")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    args = parser.parse_args()
    if 1.0 not in args.shares:
        parser.error("--shares: expected 1 among them, which the bound needs")
    args.allowance *= 10**6
    args.rng = random.Random(args.seed)
    args.prompt_of = lambda rng: [rng.randrange(1000, args.vocabulary) for _ in range(args.prompt)]
    return args


def run(args, wideep, models, engines):
    with tempfile.TemporaryDirectory() as work:
        args.work = pathlib.Path(work)
        args.records = {model.name: wideep.prepare(model) for model in models}
        popularity = {}
        for model in models:
            print(f"{model.name}: {model.experts / 1e9:.2f} GB of experts, {model.dense / 1e9:.2f} of all else")
            if args.popularity:
                popularity[model.name] = wideep.popularity(model, args.work)
                print(f"{model.name}: the most popular 25 % of the experts have {popularity[model.name][0.25]:.3f} "
                      f"of the choices, 50 % {popularity[model.name][0.5]:.3f}", flush=True)
        return popularity, run_rounds(args, models, engines)


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # the server and its group go, too
    wideep = Wideep(args)
    engines = [wideep]
    if args.llama_server:
        engines.append(LlamaCpp(args, args.llama_server))
    if args.ik_server:
        engines.append(IkLlamaCpp(args, args.ik_server))
    models = [read_model(text) for text in args.model]
    read_ahead = ReadAhead(models[0].path, args.read_ahead)
    print(f"the kernel reads {read_ahead.kib} KiB at once of mapped files")
    try:
        popularity, results = run(args, wideep, models, engines)
    finally:
        read_ahead.set(read_ahead.before)
    rows = summary(args, results, models, engines)
    print_summary(rows)
    if args.json:
        args.json.write_text(json.dumps({"read_ahead_kib": args.read_ahead or read_ahead.before,
                                         "popularity": popularity, "rows": rows, "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
