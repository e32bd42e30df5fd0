#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws what clients of `wideep serve` see when a rank is killed: every token of 32 streams over time.

    bench/kill_timeline.py --wideep build/wideep --output docs/images/kill.svg

The streams are asked for twice, of a server with 8 ranks: first nothing happens, then a rank is killed
(SIGKILL). The texts of both runs must be equal; the second one is drawn, around the kill. A stream is a
row, a token a dot, at the time when the client has received it. A killed rank is back almost at once;
--again lets the processes that are started for it die too, so that there is a time without it. Prints
the longest silence of the streams of each rank, and what the server tells of it.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re
import selectors
import signal
import socket
import tempfile
import time
import urllib.parse
import urllib.request

from serving_overhead import ROOT, Server

BEFORE, AFTER = 0.15, 0.6  # seconds that are drawn, around the kill


class Stream:
    """A completion that is streamed over a socket which never waits."""

    def __init__(self, url, number, tokens, prompt="Once upon a time"):
        self.text, self.times, self.unread = b"", [], b""
        self.is_done = False
        self.is_whole = False  # it has ended as streams do
        body = json.dumps({"model": "m", "prompt": prompt, "seed": number,
                           "max_tokens": tokens, "ignore_eos": True, "stream": True}).encode()
        self.socket = socket.create_connection((url.hostname, url.port))
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                            b"Content-Length: %d\r\n\r\n" % len(body) + body)

    def read(self):
        part = self.socket.recv(1 << 16)
        now = time.time()
        if not part:
            self.is_done = True
        self.unread += part
        *events, self.unread = self.unread.split(b"\n\n")
        for event in events:
            data = event[event.find(b"data: ") + 6:]
            self.is_whole = self.is_whole or data.startswith(b"[DONE]")
            if not data.startswith(b"{"):
                continue
            self.text += json.loads(data)["choices"][0]["text"].encode()
            self.times.append(now)


def process_named(server, name):
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == server.process.pid and (process / "comm").read_text().strip() == name:
                return int(process.name)
        except OSError:  # it has ended meanwhile
            continue
    raise SystemExit(f"there is no process {name}")


def run_streams(url, args, kill=None):
    """All streams to their end, the kill in their midst. Returns them and the time of the kill."""
    streams, selector = [], selectors.DefaultSelector()
    kill_at, killed_at = None, None

    def receive():
        for key, _ in selector.select(0.001):
            key.data.read()
            if key.data.is_done:
                selector.unregister(key.fileobj)

    for number in range(args.streams):
        streams.append(Stream(url, number, args.tokens))
        selector.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])
        # One after the other and equally long, so that it is known which rank gets which: in turn.
        while not streams[-1].times:
            receive()
    kill_at = time.time() + 1.0
    while selector.get_map():
        receive()
        if kill is not None and killed_at is None and time.time() >= kill_at:
            killed_at = time.time()
            kill()
    return streams, killed_at


@dataclasses.dataclass
class Run:
    streams: list   # of Stream
    killed: float   # when
    events: list    # of (time, text), of the server
    victim: int     # the rank
    again: int      # how often it dies once more
    num_ranks: int

    def is_of_victim(self, number):
        return number % self.num_ranks == self.victim

    def longest_gap(self, numbers):
        gaps = [b - a for number in numbers
                for a, b in zip(self.streams[number].times, self.streams[number].times[1:])
                if b > self.killed and a < self.killed + AFTER]
        return max(gaps, default=0.0)


def measure(args, work):
    # The ranks pass this step first, then what is started for the killed one.
    steps = [f"loaded:{args.ranks + 1 + i}" for i in range(args.again)]
    if steps:
        os.environ["WIDEEP_FAULT_DRILL"] = ",".join(steps)
    server = Server([args.wideep, "serve", "--port", "0", "--served-model-name", "m", "--model",
                     str(ROOT / "models/reference"), "--ranks", str(args.ranks), "--threads-per-rank", "1"],
                    work / "serve.log")
    try:
        url = urllib.parse.urlparse(server.url())
        undisturbed, _ = run_streams(url, args)
        victim = f"wideep-rank-{args.victim}"
        streams, killed = run_streams(url, args, lambda: os.kill(process_named(server, victim), signal.SIGKILL))
        data = json.load(urllib.request.urlopen(f"{server.url()}/dashboard/data"))
    finally:
        server.stop()
    if [each.text for each in streams] != [each.text for each in undisturbed]:
        raise SystemExit("texts differ from those of the undisturbed run")
    events = [(each["time"], each["text"]) for each in data["ranks"]["events"] if each["time"] >= killed - 0.01]
    return Run(streams, killed, events, args.victim, args.again, args.ranks)


# ---- the picture: colours and manner of the dashboard ----

INK, MUTED, LINE, BLUE, ORANGE, RED, GREEN = "#14171c", "#5a626d", "#dfe3e8", "#0b66b0", "#c4500b", "#b3261e", "#1a7a3c"
WIDTH, LEFT, RIGHT, TOP = 1180, 74, 26, 150
ROW, GROUP_GAP = 8.0, 7.0  # pixels


def text(x, y, what, fill=MUTED, size=12.5, anchor="start", weight=400):
    escaped = what.replace("&", "&amp;").replace("<", "&lt;")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{fill}" text-anchor="{anchor}">{escaped}</text>'


def milliseconds(seconds):
    return f"{1000 * seconds:.0f} ms"


def number_of_times(count):
    return "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def marks(run):
    """(seconds after the kill, line above the picture, colour)"""
    found = [(0.0, f"rank {run.victim} is killed", RED)]
    for at, what in run.events:
        after = at - run.killed
        computing = re.match(r"(\d+) of (\d+) ranks compute", what)
        if not computing or after > AFTER:
            continue
        others = computing[1] != computing[2]
        found.append((after, f"{milliseconds(after)}: {computing[1]} ranks compute" if others
                      else f"{milliseconds(after)}: rank {run.victim} is back", ORANGE if others else GREEN))
    return found


def draw(run):
    per_rank = -(-len(run.streams) // run.num_ranks)
    bottom = TOP + len(run.streams) * ROW + (run.num_ranks - 1) * GROUP_GAP
    height = bottom + 62
    x = lambda seconds: LEFT + (seconds + BEFORE) / (BEFORE + AFTER) * (WIDTH - LEFT - RIGHT)
    y = lambda rank, place: TOP + (rank * per_rank + place + 0.5) * ROW + rank * GROUP_GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif" role="img" '
        f'aria-label="Tokens of {len(run.streams)} streams over time while a rank is killed">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="10" fill="#fff" stroke="{LINE}"/>',
        text(22, 32, f"A rank is killed under {len(run.streams)} streams", INK, 17, weight=650),
        text(22, 54, "A row is a stream, a dot a token when its client receives it; "
             f"orange: the streams of rank {run.victim}, which other ranks go on with."),
        text(22, 72, (f"What is started for it dies {number_of_times(run.again)} more (×). " if run.again else "")
             + f"Longest silence of a stream: {milliseconds(run.longest_gap(range(len(run.streams))))}. "
             "Every text is that of an undisturbed run."),
    ]
    for tick in range(math.ceil(-BEFORE * 10), math.floor(AFTER * 10) + 1):
        at = x(tick / 10)
        parts.append(f'<path d="M{at:.1f} {TOP - 4}V{bottom + 4:.1f}" stroke="{LINE}"/>')
        parts.append(text(at, bottom + 22, "0" if tick == 0 else f"{tick * 100:+d}".replace("-", "−"), size=12, anchor="middle"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 46, "milliseconds after the kill", size=12.5, anchor="middle"))
    for rank in range(run.num_ranks):
        dead = rank == run.victim
        parts.append(text(LEFT - 14, y(rank, (per_rank - 1) / 2) + 4, f"rank {rank}" if rank == 0 or dead else str(rank),
                          ORANGE if dead else MUTED, anchor="end", weight=650 if dead else 400))
    all_marks = marks(run)
    away = x(all_marks[-1][0]) - x(0)
    parts.append(f'<rect x="{x(0):.1f}" y="{y(run.victim, -0.7):.1f}" width="{away:.1f}" height="{(per_rank + 0.4) * ROW:.1f}" fill="{RED}" fill-opacity="0.1"/>')
    for place, (after, what, colour) in enumerate(all_marks):  # a line of text for each
        line_y = TOP - 16 - 17 * (len(all_marks) - 1 - place)
        parts.append(f'<path d="M{x(after):.1f} {line_y - 10:.1f}V{bottom + 4:.1f}" stroke="{colour}" stroke-width="1.5"/>')
        parts.append(f'<rect x="{x(after) + 3:.1f}" y="{line_y - 11:.1f}" width="{7.2 * len(what):.0f}" height="15" fill="#fff"/>')
        parts.append(text(x(after) + 6, line_y, what, colour, weight=650))
    for number, stream in enumerate(run.streams):
        row = y(number % run.num_ranks, number // run.num_ranks)
        dots = "".join(f"M{x(at - run.killed):.1f} {row:.1f}h0" for at in stream.times
                       if -BEFORE <= at - run.killed <= AFTER)
        colour = ORANGE if run.is_of_victim(number) else BLUE
        parts.append(f'<path d="{dots}" stroke="{colour}" stroke-width="4.4" stroke-linecap="round" stroke-opacity="0.75"/>')
    deaths = [at for at, what in run.events if "was ended" in what]
    for at in deaths[1:]:
        if at - run.killed < AFTER:
            parts.append(text(x(at - run.killed), y(run.victim, (per_rank - 1) / 2) + 7, "×", RED, 20, "middle", 650))
    return "\n".join(parts) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--output", default="kill.svg")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=400, help="of each stream")
    parser.add_argument("--victim", type=int, default=3, help="the rank that is killed")
    parser.add_argument("--again", type=int, default=2, help="how often what is started for it dies too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        run = measure(args, pathlib.Path(work))
    pathlib.Path(args.output).write_text(draw(run))
    for number in range(args.ranks):
        mine = range(number, args.streams, args.ranks)
        print(f"streams of rank {number}: longest silence {milliseconds(run.longest_gap(mine))}")
    for at, what in run.events:
        print(f"{milliseconds(at - run.killed):>8}  {what}")


if __name__ == "__main__":
    main()
