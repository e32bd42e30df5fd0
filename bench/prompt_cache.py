#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a second turn of a long prompt waits for its first token, where the first turn's pages are kept:

    disk   in a directory, after all processes were killed (SIGKILL) and the server was started again
    host   in the node's memory, after other prompts have taken their place in the rank's own cache

    bench/prompt_cache.py --wideep build/wideep --model DIR --tokens 30000 --runs 5
    bench/prompt_cache.py --wideep build/wideep --config bench/configs/qwen3-moe-1.3b.json \\
        --llama-server llama-server --llama-model F.gguf --directory /nvme/tmp

Beside the time: the bytes of the pages, what the disk reads (a file of as many bytes, O_DIRECT, median of
5) and what a thread copies, and the limit, bytes ÷ bandwidth × 1.25 + one step. A step is the time to the
first token of a prompt that differs from where the second turn was computed, right afterwards: as many
tokens are computed, and the pages before them are in the rank's own cache.
For llama.cpp (--llama-model: the same model as GGUF): --slot-save-path, saved, killed, restored; and
--cache-ram, after other prompts. Times are medians of --runs. The last line is a summary; --json FILE has
all.
"""

import argparse
import json
import mmap
import os
import pathlib
import random
import statistics
import struct
import tempfile
import time

from served import Server, huge_pages, model_name, model_options, post, print_table, stream

PAGE = 64  # tokens
BLOCK = 4096
PIECE = 4 << 20
END_TOKENS = 128  # of a second turn, behind the first one's prompt and answer
ANSWER_TOKENS = 16


# ---- what the machine does ----


def write_file(path, size):
    """Random bytes: a disk may store zeros by their number."""
    piece = mmap.mmap(-1, PIECE)
    piece.write(os.urandom(PIECE))
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    left = size
    while left > 0:
        left -= os.write(descriptor, memoryview(piece)[:min(PIECE, left)])
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_bandwidth(directory, size):
    """Bytes per second of a file of this size, past the page cache if the file system has that."""
    size = max(size // BLOCK * BLOCK, PIECE)
    path = pathlib.Path(directory) / "bandwidth"
    write_file(path, size)
    into = huge_pages(PIECE)
    figures = []
    try:
        for _ in range(5):
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
            except OSError:
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            begin, at = time.perf_counter(), 0
            while at < size:
                count = os.preadv(descriptor, [into[:min(PIECE, size - at)]], at)
                if count == 0:
                    raise SystemExit(f"{path}: ends at byte {at} of {size}")
                at += count
            figures.append(size / (time.perf_counter() - begin))
            os.close(descriptor)
    finally:
        path.unlink()
    return statistics.median(figures)


def copy_bandwidth(size):
    """Bytes per second that one thread copies, of as many bytes."""
    source, target = mmap.mmap(-1, size), mmap.mmap(-1, size)
    for at in range(0, size, BLOCK):
        source[at] = target[at] = 1  # pages are there
    figures = []
    for _ in range(5):
        begin = time.perf_counter()
        memoryview(target)[:] = memoryview(source)
        figures.append(size / (time.perf_counter() - begin))
    return statistics.median(figures)


# ---- what is in the directory (docs/prompt_cache_format.md) ----


def kept(directory):
    """(number of records, bytes of their payloads) of a directory's segments."""
    count = total = 0
    for path in pathlib.Path(directory).glob("segment-*.wideep"):
        with path.open("rb") as file:
            at, size = BLOCK, path.stat().st_size
            while at + BLOCK <= size:
                file.seek(at)
                block = file.read(64)
                if block[:8] != b"wdprec\r\n" or struct.unpack_from("<Q", block, 24)[0] != at:
                    at += BLOCK  # free, or taken out
                    if block[:8] == bytes(8):
                        at = next_data(file, at, size)
                    continue
                payload = struct.unpack_from("<Q", block, 32)[0]
                count, total = count + 1, total + payload
                at += BLOCK + (payload + BLOCK - 1) // BLOCK * BLOCK
    return count, total


def next_data(file, at, size):
    try:
        return os.lseek(file.fileno(), at, os.SEEK_DATA) // BLOCK * BLOCK
    except OSError:
        return size  # only a hole


def wait_until_kept(directory, num_pages, seconds=120):
    """Until that many pages are there, or no more come."""
    last, since = (-1, 0), time.monotonic()
    end = since + seconds
    while time.monotonic() < end:
        now = kept(directory)
        if now != last:
            last, since = now, time.monotonic()
        if now[0] >= num_pages or time.monotonic() - since > 10:
            break
        time.sleep(0.2)
    return last


# ---- wideep ----


class Prompts:
    """A long prompt, second turns of it, and others of its length: token ids, the same for all servers."""

    def __init__(self, tokens, vocabulary, seed):
        self.rng, self.vocabulary = random.Random(seed), vocabulary
        self.first = self.random(tokens)

    def random(self, count):
        return [self.rng.randrange(10, self.vocabulary) for _ in range(count)]

    def second(self, answer):
        return self.first + answer + self.random(END_TOKENS)

    def with_other_end(self, tokens, same):
        """As many tokens, of which the first are the same."""
        return tokens[:same] + self.random(len(tokens) - same)


def ask_wideep(url, tokens, max_tokens=ANSWER_TOKENS):
    """Seconds until the first token, the answer's tokens, and how many of the prompt were cached."""
    first, answer, cached = None, [], 0
    body = {"model": model_name(url), "prompt": tokens, "max_tokens": max_tokens, "temperature": 0,
            "ignore_eos": True, "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}}
    for seconds, event in stream(url + "/v1/completions", body):
        for choice in event.get("choices") or []:
            ids = choice.get("token_ids") or []
            if ids and first is None:
                first = seconds
            answer += ids
        if event.get("usage"):
            cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return first, answer, cached


def second_turn(url, prompts, answer):
    """The second turn, and one that differs where that was computed, which is one step."""
    tokens = prompts.second(answer)
    seconds, _, cached = ask_wideep(url, tokens)
    step, _, _ = ask_wideep(url, prompts.with_other_end(tokens, cached))
    return {"seconds": seconds, "cached": cached, "step": step}


def serve(args, model, work, *options):
    return Server([args.wideep, "serve", "--port", "{port}", *model, *args.option, *options],
                  pathlib.Path(work) / "serve.log")


def from_disk(args, model, work, prompts):
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="pages-") as directory:
        options = ["--prompt-cache-dir", directory, "--prompt-cache-bytes", args.prompt_cache_bytes,
                   "--kv-cache-memory", args.kv_cache_memory]
        server = serve(args, model, work, *options)
        try:
            cold, answer, _ = ask_wideep(server.url, prompts.first)
            pages, size = wait_until_kept(directory, (len(prompts.first) + len(answer) - 1) // PAGE)
            server.kill()
            server = serve(args, model, work, *options)
            ask_wideep(server.url, prompts.random(256))  # to warm up
            turn = second_turn(server.url, prompts, answer)
        finally:
            server.kill()
    return {**turn, "cold": cold, "pages": pages, "bytes": size}


def from_host(args, model, work, prompts):
    server = serve(args, model, work, "--host-cache-size", args.host_cache_size,
                   "--kv-cache-memory", args.small_kv_cache_memory)
    try:
        cold, answer, _ = ask_wideep(server.url, prompts.first)
        time.sleep(args.settle)
        for _ in range(args.others):
            ask_wideep(server.url, prompts.random(len(prompts.first)), max_tokens=1)
        turn = second_turn(server.url, prompts, answer)
    finally:
        server.kill()
    return {**turn, "cold": cold}


# ---- llama.cpp ----


def ask_llama(url, tokens, max_tokens=ANSWER_TOKENS):
    first, answer, computed = None, [], 0
    body = {"prompt": tokens, "n_predict": max_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "id_slot": 0, "cache_prompt": True, "return_tokens": True}
    for seconds, event in stream(url + "/completion", body):
        ids = event.get("tokens") or []
        if first is None and (ids or event.get("content")):
            first = seconds
        if not event.get("stop"):
            answer += ids
        computed = (event.get("timings") or {}).get("prompt_n", computed)
    return first, answer, computed


def llama(args, work, *options):
    return Server([args.llama_server, "-m", args.llama_model, "--host", "127.0.0.1", "--port", "{port}", "-np", "1",
                   "-c", str(args.tokens + 4096), *options], pathlib.Path(work) / "llama.log")


def llama_from_disk(args, work, prompts):
    with tempfile.TemporaryDirectory(dir=args.directory, prefix="slots-") as directory:
        server = llama(args, work, "--slot-save-path", directory + "/")
        try:
            cold, answer, _ = ask_llama(server.url, prompts.first)
            post(server.url + "/slots/0?action=save", {"filename": "slot.bin"})
            size = (pathlib.Path(directory) / "slot.bin").stat().st_size
            server.kill()
            drop_from_page_cache(pathlib.Path(directory) / "slot.bin")
            server = llama(args, work, "--slot-save-path", directory + "/")
            ask_llama(server.url, prompts.random(256))
            begin = time.perf_counter()
            post(server.url + "/slots/0?action=restore", {"filename": "slot.bin"})
            restored = time.perf_counter() - begin
            tokens = prompts.second(answer)
            seconds, _, computed = ask_llama(server.url, tokens)
            step, _, _ = ask_llama(server.url, prompts.with_other_end(tokens, len(tokens) - computed))
        finally:
            server.kill()
    return {"seconds": restored + seconds, "cached": len(tokens) - computed, "step": step, "cold": cold,
            "bytes": size}


def drop_from_page_cache(path):
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def llama_from_host(args, work, prompts):
    server = llama(args, work, "--cache-ram", str(args.llama_cache_ram))
    try:
        cold, answer, _ = ask_llama(server.url, prompts.first)
        for _ in range(args.others):
            ask_llama(server.url, prompts.random(len(prompts.first)), max_tokens=1)
        tokens = prompts.second(answer)
        seconds, _, computed = ask_llama(server.url, tokens)
        step, _, _ = ask_llama(server.url, prompts.with_other_end(tokens, len(tokens) - computed))
    finally:
        server.kill()
    return {"seconds": seconds, "cached": len(tokens) - computed, "step": step, "cold": cold}


# ---- the table ----


def medians(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def measure(args, work):
    model = model_options(args, work)
    vocabulary = json.loads((pathlib.Path(model[1]) / "config.json").read_text())
    vocabulary = vocabulary.get("text_config", vocabulary)["vocab_size"]
    places = {"wideep disk": from_disk, "wideep host": from_host}
    if args.llama_server:
        places |= {"llama.cpp --slot-save-path": lambda args, _, *rest: llama_from_disk(args, *rest),
                   "llama.cpp --cache-ram": lambda args, _, *rest: llama_from_host(args, *rest)}
    places = {name: turn for name, turn in places.items() if any(each in name for each in args.places)}
    runs = {name: [] for name in places}
    for run in range(args.runs):
        for name, turn in places.items():  # in turn: the machine changes from minute to minute
            prompts = Prompts(args.tokens, vocabulary, run)
            runs[name].append(turn(args, model, work, prompts))
            last = runs[name][-1]
            print(f"run {run + 1}: {name}: {last['seconds']:.3f} s, {last['cached']} tokens cached", flush=True)
    figures = {name: medians(each) for name, each in runs.items()}
    size = int(figures["wideep disk"]["bytes"])
    for kind, bandwidth in (("disk", lambda: read_bandwidth(args.directory, size)),
                            ("host", lambda: copy_bandwidth(max(size, PIECE)))):
        if f"wideep {kind}" not in figures:
            continue
        here = figures[f"wideep {kind}"]
        here["bytes"], here["bandwidth"] = size, bandwidth()
        here["limit"] = size / here["bandwidth"] * 1.25 + here["step"]
        is_restored = here["cached"] >= args.tokens - PAGE  # else the time is that of something else
        here["verdict"] = "not restored" if not is_restored else "ok" if here["seconds"] <= here["limit"] else "over"
    return figures, runs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--model", help="a directory")
    parser.add_argument("--config", help="a config.json instead, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of wideep serve; several times")
    parser.add_argument("--llama-server", help="the command, to compare with")
    parser.add_argument("--llama-model", help="the same model as GGUF file")
    parser.add_argument("--tokens", type=int, default=30000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--places", nargs="+", default=["disk", "host", "llama.cpp"],
                        help="only these, of disk, host, --slot-save-path, --cache-ram; disk has to be there")
    parser.add_argument("--others", type=int, default=2, help="prompts that take the place in the rank's own cache")
    parser.add_argument("--settle", type=float, default=3.0, help="seconds for pages to be copied to the host tier")
    parser.add_argument("--directory", default=None, help="where directories and files are made: the disk")
    parser.add_argument("--prompt-cache-bytes", default="32G")
    parser.add_argument("--host-cache-size", default="4G")
    parser.add_argument("--kv-cache-memory", default="4G")
    parser.add_argument("--small-kv-cache-memory", default="512M",
                        help="for the host tier: room for little more than one prompt")
    parser.add_argument("--llama-cache-ram", type=int, default=8192, help="MiB")
    parser.add_argument("--json", help="a file for all figures")
    args = parser.parse_args()
    if not (args.model or args.config):
        parser.error("expected --model or --config")
    if args.llama_server and not args.llama_model:
        parser.error("--llama-server needs --llama-model")
    with tempfile.TemporaryDirectory() as work:
        args.directory = args.directory or work
        figures, runs = measure(args, work)
    rows = []
    for name, each in figures.items():
        size = f"{each['bytes'] / 1e6:.0f} MB" if "bytes" in each else ""
        limit = f"{each['limit']:.3f} s" if "limit" in each else ""
        bandwidth = f"{each['bandwidth'] / 1e9:.2f} GB/s" if "bandwidth" in each else ""
        rows.append([name, f"{each['cold']:.2f} s", f"{each['seconds']:.3f} s", f"{each['cached']:.0f}", size,
                     bandwidth, f"{each['step']:.3f} s", limit,
                     each.get("verdict", "")])
    print()
    print_table(["", "computed", "second turn", "cached", "bytes", "bandwidth", "step", "limit", ""], rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps({"tokens": args.tokens, "medians": figures, "runs": runs},
                                                      indent=1))
    print(json.dumps({"tokens": args.tokens, "medians": figures}))


if __name__ == "__main__":
    main()
