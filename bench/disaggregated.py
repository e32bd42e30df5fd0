#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers that compute prompts beside servers that answer, on two cores of one machine.

    bench/disaggregated.py --wideep build/wideep --config bench/configs/qwen3-moe-1.3b.json
    bench/disaggregated.py --wideep build/wideep --config ... --parts next-token --pairs 5
    bench/disaggregated.py --wideep build/wideep --quick     # whether it runs: models/reference, few tokens

Every figure is a ratio of two measurements of one run, taken in turn; printed are medians, beside goals.

next-token: the 99th percentile of the time between tokens of running answers while long prompts arrive, one
    after the other, over the same without prompts. Disaggregated: the server for prompts has the first core,
    the one for answers the second. The proxy and the clients are on the first core, too, before what computes
    there where the system allows that (nice -10), so that they keep no token waiting. Beside it the same
    prompts for the first server alone, which has nothing to send then: what the machine's memory and the
    clients make of it. And aggregated: one rank on the second core, and two ranks on both.
hidden: how much of a transfer computing hides. Both servers are asked at once, as the proxy does; exposed is
    the time from the first one's reply to the first token, less the iteration that computes it. The transfer
    alone: the first token where all pages were computed before, less that where they have all come. Of a server
    on the same machine the memory is mapped; the other way, TCP, is taken by a server with process numbers of
    its own (--apart).
short: output tokens per second with prompts that are not worth dividing: the proxy before two servers, over
    `wideep route` before the same two. Their roles are both, and then prefill and decode.
prediction: output tokens per second over what `wideep advise --disaggregated` predicts for one server of each
    kind, calibrated on this machine. As many requests run as are predicted to be answered at once, and those
    whose prompts are computed meanwhile. A short run is taken off a long one, so that beginning and end, where
    few requests run, count in neither. The prediction has half a page for what the answering server computes
    of a prompt itself, so prompts end there (--isl).
"""

import argparse
import concurrent.futures
import contextlib
import functools
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import types
import urllib.request

from served import ROOT, Server, model_options, post, print_table, stream

PAGE = 64
NAME = "m"  # of the model, on every server
NICE = -10
LAST = 10**15  # behind every iteration


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def settle_near_tokens(core):
    """This thread, which waits for tokens: on this core, before what computes there where that is allowed."""
    thread = threading.get_native_id()
    os.sched_setaffinity(thread, {core})
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, thread, NICE)


def pinned(cores):
    return ["taskset", "-c", ",".join(map(str, cores))]


class Bench:
    """Servers of one model, and prompts that nobody knows."""

    def __init__(self, args, work):
        self.args, self.work = args, pathlib.Path(work)
        self.model = model_options(args, work)
        shape = json.loads((pathlib.Path(self.model[1]) / "config.json").read_text())
        self.vocabulary = shape.get("text_config", shape)["vocab_size"]
        self.rng = random.Random(args.seed)
        self.first, self.second = args.cores
        self.num_files = 0

    def file(self, name):
        self.num_files += 1
        return self.work / f"{self.num_files}-{name}"

    @functools.cached_property
    def stream_bodies(self):
        return [self.body(PAGE, self.args.stream_tokens) for _ in range(self.args.streams)]

    def body(self, prompt_tokens, max_tokens):
        prompt = [self.rng.randrange(10, self.vocabulary) for _ in range(prompt_tokens)]
        return {"model": NAME, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}

    @contextlib.contextmanager
    def served(self, cores, *options, before=()):
        """A server on these cores. before: a command that starts it, and passes no signals on."""
        command = [*before, *pinned(cores), self.args.wideep, "serve", "--port", "{port}", *self.model,
                   "--served-model-name", NAME, "--dtype", self.args.dtype, "--kv-cache-memory",
                   self.args.kv_cache_memory, *self.args.option, *options]
        server = Server(command, self.file("serve.log"))
        try:
            yield server
        finally:
            server.kill() if before else server.stop()

    @contextlib.contextmanager
    def both_kinds(self, before=()):
        """A server for prompts on the first core, and one for answers on the second. before: of the latter."""
        prompts = ("--max-num-tokens", str(self.args.chunk), "--role", "prefill")
        with self.served([self.first], "--ranks", "1", *prompts) as prefill, \
                self.served([self.second], "--ranks", "1", "--role", "decode", before=before) as decode:
            yield prefill, decode

    @contextlib.contextmanager
    def started(self, *command):
        server = Server(command, self.file("proxy.log"))
        try:
            yield server
        finally:
            server.stop()

    @contextlib.contextmanager
    def proxy(self, context, generation, before=()):
        """`wideep disaggregated` before these servers, when it knows them."""
        config = self.file("disagg_config.yaml")
        sections = {"context_servers": context, "generation_servers": generation}
        config.write_text("".join(f"{name}:\n  urls: {json.dumps([each.url[7:] for each in servers])}\n"
                                  for name, servers in sections.items()))
        with self.started(*before, self.args.wideep, "disaggregated", "-c", str(config), "--host", "127.0.0.1",
                          "--port", "{port}") as server:
            yield server


def wait_for_roles(proxy, roles):
    """Until the proxy knows that each server (url) has its role, and what there is to do at each."""
    lines = [f'wideep_router_role{{replica="{url}",role="{role}"}} 1' for url, role in roles.items()]
    for _ in range(300):
        metrics = get(proxy.url + "/metrics").splitlines()
        if all(line in metrics for line in lines):
            time.sleep(1.5)  # it asks each second
            return
        time.sleep(0.1)
    raise SystemExit(f"the proxy does not see the roles {roles}:\n{proxy.log.read_text()[-4000:]}")


def count_divided(proxy):
    """Prompts that one server computes for another."""
    name = "wideep_router_prompts_divided_total{"
    return sum(float(line.split()[-1]) for line in get(proxy.url + "/metrics").splitlines() if line.startswith(name))


def iterations_since(url, number):
    return json.loads(get(f"{url}/perf_metrics?since={number}"))["iterations"]


def last_iteration(url):
    return json.loads(get(f"{url}/perf_metrics?since={LAST}"))["last"]


def p99(values):
    return statistics.quantiles(values, n=100)[98]


# ---- the time between tokens ----


class Streams:
    """Answers that run until stop(); each begins again when it ends. The same ones each time: how many experts
    a step reads depends on its tokens."""

    def __init__(self, bench, url):
        args = bench.args
        self.url, self.core, self.ends = url, bench.first, threading.Event()
        self.gaps = []  # (when it began, seconds)
        self.counts = [0] * args.streams
        self.pool = concurrent.futures.ThreadPoolExecutor(args.streams)
        bodies = [{**body, "stream": True, "return_token_ids": True} for body in bench.stream_bodies]
        self.running = [self.pool.submit(self.run, number, body) for number, body in enumerate(bodies)]

    def run(self, number, body):
        settle_near_tokens(self.core)
        while not self.ends.is_set():
            last = None
            for _, event in stream(self.url + "/v1/completions", body):
                if self.ends.is_set():
                    break
                if not any(choice.get("token_ids") for choice in event.get("choices") or []):
                    continue
                now = time.perf_counter()
                if last is not None:
                    self.gaps.append((last, now - last))
                last = now
                self.counts[number] += 1

    def wait_for(self, tokens):
        """Until each has so many more."""
        wanted = [count + tokens for count in self.counts]
        while any(count < least for count, least in zip(self.counts, wanted)):
            for each in self.running:
                if each.done():
                    each.result()
                    raise SystemExit("a stream has ended")
            time.sleep(0.01)

    def stop(self):
        self.ends.set()
        for each in self.running:
            each.result()
        self.pool.shutdown()

    def begun(self, begin, end):
        """Seconds of those that began in this time."""
        return [seconds for since, seconds in self.gaps if begin <= since < end]


def send_prompts(bench, url, tokens, count):
    """One after the other. Returns the seconds of each, to its first token."""
    bodies = [bench.body(tokens, 1) for _ in range(count)]

    def send():
        settle_near_tokens(bench.first)
        seconds = []
        for body in bodies:
            begin = time.perf_counter()
            post(url + "/v1/completions", body)
            seconds.append(time.perf_counter() - begin)
        return seconds

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(send).result()


def measure_gaps(bench, answers, engine, prompts):
    """Of streams of `answers`, while prompts go to `prompts`; None: none. engine: who computes the tokens."""
    args = bench.args
    streams, seconds = Streams(bench, answers), []
    try:
        streams.wait_for(8)
        before, begin = last_iteration(engine), time.perf_counter()
        if prompts is None:
            time.sleep(args.seconds)
        else:
            seconds = send_prompts(bench, prompts, args.prompt_tokens, args.prompts)
        end = time.perf_counter()
        streams.wait_for(2)  # the step of the last prompt's end, too
    finally:
        streams.stop()
    gaps = streams.begun(begin, end)
    steps = [each["iteration_seconds"] for each in iterations_since(engine, before) if each["num_generated_tokens"]]
    if min(len(gaps), len(steps)) < 2:
        raise SystemExit("too few tokens to compare: expected more --seconds and --prompts")
    time.sleep(1)  # who has left is gone
    return {"p50": statistics.median(gaps), "p99": p99(gaps), "step_p99": p99(steps), "gaps": len(gaps),
            "prompt": statistics.median(seconds) if seconds else 0.0}


@contextlib.contextmanager
def disaggregated(bench):
    before = [*pinned([bench.first]), "nice", "-n", str(NICE)]
    with bench.both_kinds() as (prefill, decode), bench.proxy([prefill], [decode], before) as proxy:
        wait_for_roles(proxy, {prefill.url: "prefill", decode.url: "decode"})
        yield types.SimpleNamespace(answers=proxy.url, engine=decode.url, proxy=proxy, prompts={
            "disaggregated": proxy.url, "for the first server alone": prefill.url})


def aggregated(name, cores):
    @contextlib.contextmanager
    def start(bench):
        with bench.served(cores(bench), "--ranks", str(len(cores(bench)))) as server:
            yield types.SimpleNamespace(answers=server.url, engine=server.url, proxy=None,
                                        prompts={name: server.url})
    return start


LAYOUTS = [disaggregated, aggregated("aggregated, one rank", lambda bench: [bench.second]),
           aggregated("aggregated, two ranks", lambda bench: [bench.first, bench.second])]


def measure_layout(bench, start):
    """{case: [pair]}: without and with prompts."""
    pairs = {}
    with start(bench) as servers:
        first = next(iter(servers.prompts.values()))
        # Memory is touched then, and the proxy knows what a token costs.
        send_prompts(bench, first, bench.args.prompt_tokens, bench.args.prompts)
        for pair in range(bench.args.pairs):
            order = [None, *servers.prompts]
            found = {}
            for case in order if pair % 2 == 0 else order[::-1]:
                divided = count_divided(servers.proxy) if servers.proxy else 0
                found[case] = measure_gaps(bench, servers.answers, servers.engine,
                                           servers.prompts[case] if case else None)
                if servers.proxy:
                    found[case]["divided"] = count_divided(servers.proxy) - divided
            for case in servers.prompts:
                one = {"without": found[None], "with": found[case]}
                pairs.setdefault(case, []).append(one)
                print(f"pair {pair + 1}, {case}: p99 {found[None]['p99'] * 1e3:.1f} ms without prompts, "
                      f"{found[case]['p99'] * 1e3:.1f} ms with, of {found[case]['gaps']} gaps; a prompt "
                      f"{found[case]['prompt']:.2f} s" +
                      (f", {found[case]['divided']:.0f} divided" if servers.proxy else ""), flush=True)
    return pairs


def next_token(bench):
    pairs = {}
    for start in LAYOUTS:
        pairs |= measure_layout(bench, start)
    rows, figures = [], []
    for case, each in pairs.items():
        def milliseconds(key, each=each):
            return [f"{statistics.median(pair[which][key] for pair in each) * 1e3:.1f}" for which in
                    ("without", "with")]
        rows.append([case, *milliseconds("p50"), *milliseconds("p99"), *milliseconds("step_p99")])
        for key in ("p50", "p99"):
            has_goal = case == "disaggregated" and key == "p99"
            figures.append({"name": f"next token, {key}, {case}", "goal": "at most 1.1" if has_goal else "",
                            "values": [pair["with"][key] / pair["without"][key] for pair in each],
                            "is_kept": (lambda ratio: ratio <= 1.1) if has_goal else None})
    print()
    print_table(["ms", "p50 without", "with", "p99 without", "with", "iterations, p99 without", "with"], rows)
    return figures, pairs


# ---- the transfer ----


def first_token(bench, url, body):
    """When it came, and how many of the prompt's tokens were not computed."""
    settle_near_tokens(bench.first)
    first, cached = None, 0
    for _, event in stream(url + "/v1/completions", {**body, "stream": True, "return_token_ids": True,
                                                     "stream_options": {"include_usage": True}}):
        if first is None and any(choice.get("token_ids") for choice in event.get("choices") or []):
            first = time.perf_counter()
        if event.get("usage"):
            cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return first, cached


class Transfers:
    """A server for prompts, and one for answers, that are asked as a proxy asks them."""

    def __init__(self, bench, prefill, decode, pool):
        self.bench, self.prefill, self.decode, self.pool = bench, prefill, decode, pool
        self.state = json.loads(get(prefill.url + "/v1/pd_role"))["encoded_opaque_state"]
        # The last page is one token, and the chunk before it is not short.
        self.tokens = (bench.args.prompt_tokens // PAGE - 1) * PAGE + 1

    def request(self):
        body, number = self.bench.body(self.tokens, 1), self.bench.rng.randrange(1, 1 << 53)
        shared = {"disagg_request_id": number}
        return body, {**body, "disaggregated_params": {**shared, "request_type": "context_only"}}, \
            {**body, "disaggregated_params": {**shared, "request_type": "generation_only",
                                              "encoded_opaque_state": self.state}}

    def compute(self, body):
        """When the reply came."""
        settle_near_tokens(self.bench.first)
        post(self.prefill.url + "/v1/completions", body)
        return time.perf_counter()

    def answer(self, body):
        """Since when, and first_token()."""
        begin = time.perf_counter()
        first, cached = self.pool.submit(first_token, self.bench, self.decode.url, body).result()
        if cached < self.tokens - 1:
            raise SystemExit(f"expected {self.tokens - 1} tokens of the other server, found {cached}:\n"
                             f"{self.decode.log.read_text()[-4000:]}")
        return first - begin, first

    def measure(self):
        _, context, generation = self.request()
        before = last_iteration(self.decode.url)
        computed = self.pool.submit(self.compute, context)
        _, first = self.answer(generation)
        behind = first - computed.result()
        time.sleep(0.5)  # iterations are told of
        iterations = iterations_since(self.decode.url, before)
        step = sum(each["iteration_seconds"] for each in iterations if each["num_generated_tokens"])
        came = [each["bytes"] for one in iterations for each in one.get("prompt_transfers", [])]
        body, context, generation = self.request()
        self.pool.submit(self.compute, context).result()
        time.sleep(1)  # its last pages are written
        alone, _ = self.answer(generation)
        again, _ = self.answer(body)  # has all pages
        transfer, exposed = alone - again, max(behind - step, 0.0)
        return {"transfer": transfer, "exposed": exposed, "step": step, "bytes": max(came, default=0)}


def hidden(bench):
    ways = {"mapped memory": []}
    if bench.args.apart:
        apart = bench.args.apart.split()
        done = subprocess.run([*apart, "true"], capture_output=True, text=True)
        if done.returncode == 0:
            ways["TCP"] = apart
        else:
            print(f"TCP is left out: {bench.args.apart}: {done.stderr.strip()}")
    runs = {way: [] for way in ways}
    for way, before in ways.items():
        with bench.both_kinds(before) as (prefill, decode), concurrent.futures.ThreadPoolExecutor(2) as pool:
            transfers = Transfers(bench, prefill, decode, pool)
            transfers.measure()  # connects, maps, and warms up
            for run in range(bench.args.runs):
                one = transfers.measure()
                if one["transfer"] <= 0:
                    print(f"run {run + 1}, {way}: does not count: the first token came {-one['transfer'] * 1e3:.1f} ms "
                          "earlier with the transfer than without", flush=True)
                    continue
                one["hidden"] = 1 - one["exposed"] / one["transfer"]
                runs[way].append(one)
                print(f"run {run + 1}, {way}: {one['bytes'] / 1e6:.0f} MB take {one['transfer'] * 1e3:.1f} ms alone, "
                      f"{one['exposed'] * 1e3:.1f} ms beside the prompt's last chunk; the step behind them "
                      f"{one['step'] * 1e3:.1f} ms", flush=True)
    return [{"name": f"hidden, {way}", "goal": "at least 0.9", "values": [run["hidden"] for run in each],
             "is_kept": lambda share: share >= 0.9} for way, each in runs.items()], runs


# ---- throughput ----


def bench_serving(bench, url, requests, *options):
    """requests: tokens of a prompt and of an answer, how many, and how many at once."""
    isl, osl, count, concurrency = requests
    command = [bench.args.wideep, "bench", "serving", "--base-url", url, "--model", NAME, "--json", "--disable-tqdm",
               "--random-input-len", str(isl), "--random-output-len", str(osl), "--num-prompts", str(count),
               "--max-concurrency", str(concurrency), "--seed", str(bench.rng.randrange(1 << 30)),
               "--random-least-id", "10", "--random-num-ids", str(bench.vocabulary - 10), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def short(bench):
    args = bench.args
    requests = (args.short_tokens, args.short_tokens, args.requests, args.concurrency)
    roles = {"both": ("both", "both"), "prefill and decode": ("prefill", "decode")}
    pairs = {case: [] for case in roles}
    with bench.served([bench.first], "--ranks", "1", "--role", "both") as one, \
            bench.served([bench.second], "--ranks", "1", "--role", "both") as other, \
            bench.started(args.wideep, "route", "--replica", one.url, "--replica", other.url, "--port",
                          "{port}") as route, bench.proxy([one, other], [one, other]) as proxy:
        def run(case, is_aggregated):
            of = dict(zip((one.url, other.url), roles["both" if is_aggregated else case]))
            for url, role in of.items():
                post(url + "/pd_role_switch", {"new_role": role})
            wait_for_roles(proxy, of)
            url = route.url if is_aggregated else proxy.url
            return bench_serving(bench, url, requests)["output_tokens_per_second"]

        for pair in range(-1, args.pairs):  # the first one warms up
            for case in roles:
                order = (True, False) if pair % 2 == 0 else (False, True)
                found = {is_aggregated: run(case, is_aggregated) for is_aggregated in order}
                if pair < 0:
                    continue
                pairs[case].append({"aggregated": found[True], "disaggregated": found[False]})
                print(f"pair {pair + 1}, {case}: {found[True]:.1f} tokens/s aggregated, {found[False]:.1f} by way of "
                      "the proxy", flush=True)
    return [{"name": f"short prompts, {case}", "goal": "at least 0.97",
             "values": [pair["disaggregated"] / pair["aggregated"] for pair in each],
             "is_kept": lambda ratio: ratio >= 0.97} for case, each in pairs.items()], pairs


def advise(bench, *options):
    """What it prints, "" where it fails, and the last line of its log."""
    args = bench.args
    command = [args.wideep, "advise", "--model", bench.model[1], "--hardware", "this", "--isl", str(args.isl),
               "--osl", str(args.osl), "--concurrency", str(args.concurrency), "--ranks-max", "2", "--dtype",
               args.dtype, "--disaggregated", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stderr.strip().splitlines()
    return done.stdout if done.returncode == 0 else "", lines[-1] if lines else ""


def predict(bench, output):
    """A file for --prediction, and what it recommends."""
    calibration = []
    if not bench.args.quick:
        calibration = ["--calibration", str(bench.file("calibration.yaml"))]
        advise(bench, "--measure", *calibration)
    text, complaint = advise(bench, *calibration, "--output", str(output))
    advice = json.loads(text)["disaggregated"] if text else {"recommended": None, "reasons": [complaint]}
    best = advice["recommended"]
    if best is None:
        raise SystemExit(f"wideep advise recommends no server of each kind: {' '.join(advice['reasons'])}")
    file = bench.file("prediction.json")
    file.write_text(text)
    return file, best


def prediction(bench):
    output = bench.work / "advised"
    file, best = predict(bench, output)
    args, config = bench.args, output / "disagg_config.yaml"
    at_once = max(round(best["requests"]), 1) + math.ceil(best["requests_per_second"] * best["context"]["ttft_ms"] * 1e-3)
    runs = []
    with bench.served([bench.first], "--role", "prefill", "--config", f"{config}:context_servers") as prefill, \
            bench.served([bench.second], "--role", "decode", "--config", f"{config}:generation_servers") as decode, \
            bench.proxy([prefill], [decode]) as proxy:
        wait_for_roles(proxy, {prefill.url: "prefill", decode.url: "decode"})
        bench_serving(bench, proxy.url, (args.isl, args.osl, at_once, at_once))  # to warm up
        for run in range(args.runs):
            begun, whole = (bench_serving(bench, proxy.url, (args.isl, args.osl, rounds * at_once, at_once),
                                          "--prediction", str(file)) for rounds in (2, 2 + args.rounds))
            steady = (whole["output_tokens"] - begun["output_tokens"]) / \
                (whole["duration_seconds"] - begun["duration_seconds"])
            predicted = whole["prediction"]["output_tokens_per_second"]["predicted"]
            runs.append({"steady": steady, "whole": whole["output_tokens_per_second"], "predicted": predicted,
                         "ttft": whole["ttft_seconds"]["mean"], "tpot": whole["tpot_seconds"]["mean"]})
            print(f"run {run + 1}: {best['name']}, {at_once} at once: {predicted:.1f} tokens/s predicted, "
                  f"{steady:.1f} measured, {runs[-1]['whole']:.1f} with beginning and end; TPOT "
                  f"{best['tpot_ms']:.1f} ms predicted, {runs[-1]['tpot'] * 1e3:.1f} measured", flush=True)
    return [{"name": "prediction", "goal": "0.9 to 1.1", "values": [run["steady"] / run["predicted"] for run in runs],
             "is_kept": lambda ratio: 0.9 <= ratio <= 1.1}], {"predicted": best, "runs": runs}


# ---- all ----

PARTS = {"next-token": next_token, "hidden": hidden, "short": short, "prediction": prediction}
QUICK = {"pairs": 1, "runs": 1, "seconds": 1.0, "prompts": 1, "prompt_tokens": 1024, "requests": 8, "concurrency": 4,
         "isl": 160, "osl": 16, "rounds": 2}


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--model", help="a directory")
    parser.add_argument("--config", help="a config.json instead, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of every wideep serve; several times")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these")
    parser.add_argument("--dtype", default="bf16", help="of the weights")
    parser.add_argument("--kv-cache-memory", default="512M",
                        help="of each server, and as much for pages of others; little is soon touched by all prompts")
    parser.add_argument("--cores", type=int, nargs=2, help="of prompts and of answers (default: the first two)")
    parser.add_argument("--apart", default="unshare --pid --fork --kill-child --mount-proc",
                        help="what starts a server for which the other's memory is on another machine; empty: none")
    parser.add_argument("--pairs", type=int, default=3, help="of next-token and short")
    parser.add_argument("--runs", type=int, default=3, help="of hidden and prediction")
    parser.add_argument("--streams", type=int, default=8, help="answers that run while prompts arrive")
    parser.add_argument("--stream-tokens", type=int, default=8192, help="of each, until it begins again")
    parser.add_argument("--seconds", type=float, default=60, help="without prompts")
    parser.add_argument("--prompts", type=int, default=3, help="that arrive one after the other")
    parser.add_argument("--prompt-tokens", type=int, default=8192)
    parser.add_argument("--chunk", type=int, default=512,
                        help="tokens of a prompt that its server computes at once: pages of the last ones come last")
    parser.add_argument("--short-tokens", type=int, default=64, help="of a short prompt, and of its answer")
    parser.add_argument("--requests", type=int, default=128, help="with short prompts")
    parser.add_argument("--concurrency", type=int, default=16, help="of short and prediction")
    parser.add_argument("--isl", type=int, default=544, help="tokens of a prompt, of prediction")
    parser.add_argument("--osl", type=int, default=128, help="tokens of an answer, of prediction")
    parser.add_argument("--rounds", type=int, default=6, help="of prediction: requests, for each of those at once")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="whether it runs: few tokens of models/reference")
    parser.add_argument("--json", help="a file for all figures")
    args = parser.parse_args()
    if args.quick:
        vars(args).update(QUICK)
        if not args.config:
            args.model = args.model or str(ROOT / "models/reference")
    if not (args.model or args.config):
        parser.error("expected --model or --config")
    args.cores = args.cores or sorted(os.sched_getaffinity(0))[:2]
    if len(set(args.cores)) < 2:
        parser.error("expected two cores")
    return args


def main():
    args = parsed()
    figures, runs = [], {}
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(args, work)
        for part in args.parts:
            print(f"\n{part}", flush=True)
            found, runs[part] = PARTS[part](bench)
            figures += found
    rows, missed = [], []
    for each in figures:
        values = each["values"]
        is_kept = each["is_kept"] is None or (bool(values) and each["is_kept"](statistics.median(values)))
        if not is_kept:
            missed.append(each["name"])
        found = [f"{min(values):.3f} to {max(values):.3f}", f"{statistics.median(values):.3f}"] if values else ["", ""]
        rows.append([each["name"], len(values), *found, each["goal"],
                     "" if each["is_kept"] is None else "ok" if is_kept else "missed"])
    print()
    print_table(["", "runs", "ratios", "median", "goal", ""], rows)
    if args.json:
        medians = {each["name"]: statistics.median(each["values"]) for each in figures if each["values"]}
        pathlib.Path(args.json).write_text(json.dumps({"medians": medians, "runs": runs}, indent=1))
    if missed and not args.quick:
        sys.exit(f"goals are missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
