#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures whether large requests delay running streams: the gaps between the events of streams that run
in `wideep serve`, first alone, then while large requests come one after the other. A line for each kind
of request: median and longest gap in milliseconds, and how many times the median the longest is.

    bench/stream_gaps.py --wideep build/wideep
    bench/stream_gaps.py --wideep build/wideep --url http://127.0.0.1:8000 --model m   # a server that runs

The machine's own delays are measured beside: "client" is the longest time that a thread of the streams'
process, which only sleeps a millisecond at a time, was late. Large requests come from a process of raised
niceness, so that what the sender itself computes does not count. Each kind is also sent to a process that
only reads bodies and answers 400 ("sink"): what its row shows is the machine's, not the server's.
"""

import argparse
import http.client
import http.server
import json
import multiprocessing
import os
import pathlib
import statistics
import tempfile
import threading
import time
import urllib.parse

from serving_overhead import ROOT, Server

WORDS = "The experts of every layer are spread over many ranks, and 12 tokens travel to them. "


def text_of(size):
    return (WORDS * (size // len(WORDS) + 1))[:size]


def large_requests(model):
    """Name -> body of a request that costs the server much."""
    def completion(prompt, **more):
        return json.dumps({"model": model, "prompt": prompt, "max_tokens": 1, **more})
    messages = [{"role": "user", "content": text_of(7_900_000)}]
    return {
        "prompt of 7.9 MB": completion(text_of(7_900_000)),
        "prompt of 7.9 MB without spaces": completion("x" * 7_900_000),
        "chat of 7.9 MB": json.dumps({"model": model, "messages": messages, "max_tokens": 1}),
        "prompt of 200 KB": completion(text_of(200_000)),
        "16 stop strings of 490 KB": completion("x", stop=["s" * 490_000] * 16),
        "16 stop strings of 1 KB, 128 answers": completion("x", stop=["s" * 1024] * 16, n=128),
        "1.5 M token ids": completion([300] * 1_500_000),
        "7.9 MB that are no JSON": "[" * 7_900_000,
    }


def send_again_and_again(url, body, seconds, status):
    os.nice(10)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        status.value = post(url, body)


def post(url, body):
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    connection.request("POST", "/v1/completions" if '"messages"' not in body[:40] else "/v1/chat/completions", body)
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


class Sink(http.server.BaseHTTPRequestHandler):
    """Reads bodies and refuses them."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def start_sink():
    server = http.server.HTTPServer(("127.0.0.1", 0), Sink)
    multiprocessing.Process(target=server.serve_forever, daemon=True).start()
    return urllib.parse.urlparse(f"http://127.0.0.1:{server.server_port}")


class Stream(threading.Thread):
    """Notes when each event of an endless stream arrives."""

    def __init__(self, url, model):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        self.connection.request("POST", "/v1/completions", json.dumps({
            "model": model, "prompt": "Once", "max_tokens": 30000, "ignore_eos": True, "stream": True}))
        self.times = []
        self.ends = False

    def run(self):
        reply = self.connection.getresponse()
        while not self.ends:
            line = reply.readline()
            if not line:
                return
            if line.startswith(b"data:"):
                self.times.append(time.monotonic())


class Sleeper(threading.Thread):
    def __init__(self):
        super().__init__(daemon=True)
        self.late = 0.0

    def run(self):
        while True:
            start = time.monotonic()
            time.sleep(0.001)
            self.late = max(self.late, time.monotonic() - start - 0.001)


def report(name, streams, sleeper, start, status):
    gaps = []
    for stream in streams:
        times = [each for each in stream.times if each >= start]
        gaps += [1e3 * (b - a) for a, b in zip(times, times[1:])]
    gaps.sort()
    median, longest = statistics.median(gaps), gaps[-1]
    high = gaps[int(len(gaps) * 0.999)]
    print(f"{name:52} {status:>6} {median:8.2f} {high:8.2f} {longest:8.2f} {longest / median:8.2f} "
          f"{1e3 * sleeper.late:8.2f}", flush=True)
    sleeper.late = 0.0


def measure(args, url, model):
    sink = start_sink()
    streams = [Stream(url, model) for _ in range(args.streams)]
    for stream in streams:
        stream.start()
    sleeper = Sleeper()
    sleeper.start()
    time.sleep(2)
    print(f"{'':52} {'status':>6} {'median':>8} {'p99.9':>8} {'longest':>8} {'times':>8} {'client':>8}")
    start = time.monotonic()
    time.sleep(args.seconds)
    report("streams alone", streams, sleeper, start, "")
    for name, body in large_requests(model).items():
        for to, target in (("sink", sink), ("server", url)):
            start = time.monotonic()
            status = multiprocessing.Value("i", 0)
            sender = multiprocessing.Process(target=send_again_and_again,
                                             args=(target, body, args.seconds, status))
            sender.start()
            sender.join()
            report(f"{name}, to the {to}", streams, sleeper, start, status.value)
    for stream in streams:
        stream.ends = True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--url", help="a server that runs; without it, one is started")
    parser.add_argument("--model", default="m", help="its model's name")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4, help="for each kind of request")
    args = parser.parse_args()
    if args.url:
        return measure(args, urllib.parse.urlparse(args.url), args.model)
    with tempfile.TemporaryDirectory() as work:
        server = Server([args.wideep, "serve", "--port", "0", "--served-model-name", args.model, "--model",
                         str(ROOT / "models/reference"), "--ranks", str(args.ranks)],
                        pathlib.Path(work) / "serve.log")
        try:
            measure(args, urllib.parse.urlparse(server.url()), args.model)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
