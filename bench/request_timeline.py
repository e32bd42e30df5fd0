#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws one request over two servers: one computes its prompt, the other one answers.

    bench/request_timeline.py --wideep build/wideep --config bench/configs/qwen3-moe-1.3b.json \\
        --output docs/images/disaggregated.svg

Phases are the spans that the proxy and both servers send for the request (one machine, so one clock).
Chunks of the prompt are iterations of the first server, pages those that the second one says to have. Tokens are drawn when clients receive them: the request's, and those of answers that the
second server gives meanwhile, each core having a server.
"""

import argparse
import contextlib
import http.server
import json
import os
import pathlib
import tempfile
import threading
import time

from disaggregated import Bench, get, iterations_since, last_iteration, wait_for_roles
from kill_timeline import BLUE, GREEN, INK, LINE, MUTED, ORANGE, RIGHT, WIDTH, text
from served import stream

LEFT, TOP, BAR, DOTS = 150, 96, 26.0, 9.0  # pixels


class Collector:
    """Spans that come by OTLP over HTTP: (service, span)."""

    def __init__(self):
        spans = self.spans = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                for resource in json.loads(self.rfile.read(int(self.headers["Content-Length"])))["resourceSpans"]:
                    service = next(each["value"]["stringValue"] for each in resource["resource"]["attributes"]
                                   if each["key"] == "service.name")
                    for scope in resource["scopeSpans"]:
                        spans.extend((service, each) for each in scope["spans"])
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{self.server.server_address[1]}"

    def of_prompt_after(self, begin, seconds=30):
        """{(service, name): (begin, end)} of the trace whose prompt was computed after this time."""
        wanted = {("proxy", "POST"), ("prefill", "prefill"), ("decode", "queue"), ("decode", "prefill"), ("decode", "decode")}
        end = time.time() + seconds
        while time.time() < end:
            spans = [(service, each["name"], each["traceId"], int(each["startTimeUnixNano"]) / 1e9,
                      int(each["endTimeUnixNano"]) / 1e9) for service, each in list(self.spans)]
            traces = [trace for service, name, trace, at, _ in spans if (service, name) == ("prefill", "prefill") and at > begin]
            found = {(service, name): (at, until) for service, name, trace, at, until in spans if trace in traces[:1]}
            if wanted <= found.keys():
                return found
            time.sleep(0.1)
        raise SystemExit(f"spans of the request that have not come: {wanted - found.keys()}")


class Tokens(threading.Thread):
    """A stream, and when each of its tokens has come."""

    def __init__(self, url, body):
        super().__init__(daemon=True)
        self.url, self.body, self.times = url, {**body, "stream": True}, []
        self.start()

    def run(self):
        for _, event in stream(self.url + "/v1/completions", self.body):
            if any(choice.get("text") for choice in event.get("choices") or []):
                self.times.append(time.time())

    def wait_for(self, tokens):
        while len(self.times) < tokens and self.is_alive():
            time.sleep(0.01)


def arrived_pages(server):
    return json.loads(get(server.url + "/dashboard/data"))["page_sharing"]["arrived"]


def measure(args, work):
    collector = Collector()
    bench = Bench(args, work)
    with contextlib.ExitStack() as stack:
        servers = {}
        for role, core in (("prefill", bench.first), ("decode", bench.second)):
            os.environ["OTEL_SERVICE_NAME"] = role
            servers[role] = stack.enter_context(bench.served([core], "--ranks", "1", "--role", role))
        os.environ["OTEL_SERVICE_NAME"] = "proxy"
        proxy = stack.enter_context(bench.proxy([servers["prefill"]], [servers["decode"]]))
        wait_for_roles(proxy, {server.url: role for role, server in servers.items()})
        others = [Tokens(servers["decode"].url, bench.body(16, 100_000 // args.streams)) for _ in range(args.streams)]
        for each in others:
            each.wait_for(8)
        Tokens(proxy.url, bench.body(args.prompt_tokens, 8)).join()  # memory is touched, connections are there
        time.sleep(2.5)  # the proxy has heard what is done
        last = last_iteration(servers["prefill"].url)
        begin = time.time()
        pages = []
        request = Tokens(proxy.url, bench.body(args.prompt_tokens, args.tokens))
        while request.is_alive():
            pages.append((time.time(), arrived_pages(servers["decode"])))
            time.sleep(0.005)
        time.sleep(args.margin)
        spans = collector.of_prompt_after(begin)
        chunks = [each for each in iterations_since(servers["prefill"].url, last) if each["num_context_tokens"] > 0]
        transfer = next(each["prompt_transfers"][-1] for each in reversed(iterations_since(servers["decode"].url, 0))
                        if "prompt_transfers" in each)
    until = spans["decode", "queue"][1]  # after it none is on its way
    pages = [*(each for each in pages if each[0] < until), (until, transfer["pages_from_server"])]
    return spans, chunks, pages, request.times, [each.times for each in others], transfer


def draw(args, spans, chunks, pages, tokens, others, transfer):
    begin, end = spans["proxy", "POST"]
    first, last = begin - args.margin, end + args.margin
    x = lambda at: LEFT + (min(max(at, first), last) - first) / (last - first) * (WIDTH - LEFT - RIGHT)
    parts = []

    def bar(y, span, colour, opacity=1.0, height=BAR):
        parts.append(f'<rect x="{x(span[0]):.1f}" y="{y:.1f}" width="{max(x(span[1]) - x(span[0]), 1):.1f}" height="{height:.1f}" '
                     f'rx="2" fill="{colour}" fill-opacity="{opacity}"/>')

    def dots(y, times, colour):
        path = "".join(f"M{x(at):.1f} {y:.1f}h0" for at in times if first <= at <= last)
        parts.append(f'<path d="{path}" stroke="{colour}" stroke-width="4.4" stroke-linecap="round" stroke-opacity="0.75"/>')

    def label(y, what, colour=INK):
        parts.append(text(LEFT - 14, y, what, colour, anchor="end", weight=650))

    y = TOP
    label(y + 17, "proxy")
    bar(y, spans["proxy", "POST"], MUTED, 0.35)
    y += BAR + 14
    label(y + 17, "prefill server", BLUE)
    for each in chunks:
        span = (each["timestamp"] - each["iteration_seconds"], each["timestamp"])
        bar(y, span, BLUE, 0.75)
        if x(span[1]) - x(span[0]) > 34:
            parts.append(text((x(span[0]) + x(span[1])) / 2, y + 17, str(each["num_context_tokens"]), "#fff", anchor="middle"))
    y += BAR + 10
    most, height = max(count for _, count in pages), 48.0
    label(y + height / 2 + 4, "pages there", ORANGE)
    steps = "".join(f"L{x(at):.1f} {y + height * (1 - count / most):.1f}" for at, count in pages)
    parts.append(f'<path d="M{x(pages[0][0]):.1f} {y + height:.1f}{steps}L{x(pages[-1][0]):.1f} {y + height:.1f}Z" '
                 f'fill="{ORANGE}" fill-opacity="0.25" stroke="{ORANGE}"/>')
    parts.append(text(x(spans["decode", "queue"][1]) + 6, y + 12, f"{most}", ORANGE, weight=650))
    y += height + 10
    label(y + 17, "decode server", GREEN)
    bar(y, spans["decode", "queue"], GREEN, 0.18)
    parts.append(text(x(spans["decode", "queue"][0]) + 8, y + 17, "takes pages, and answers others", GREEN))
    bar(y, spans["decode", "prefill"], GREEN, 0.9)
    bar(y, spans["decode", "decode"], GREEN, 0.5)
    y += BAR + 18
    label(y + 4, "this answer", GREEN)
    dots(y, tokens, GREEN)
    y += 16
    label(y + (len(others) - 1) * DOTS / 2 + 4, "other answers", MUTED)
    for times in others:
        dots(y, times, MUTED)
        y += DOTS
    bottom = y + 4
    ticks = []
    step = next(each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10) if (end - begin) / each <= 12)
    for i in range(int((last - begin) / step) + 1):
        at = x(begin + i * step)
        ticks.append(f'<path d="M{at:.1f} {TOP - 6}V{bottom:.1f}" stroke="{LINE}"/>')
        ticks.append(text(at, bottom + 18, f"{i * step:g}", size=12, anchor="middle"))
    ticks.append(text((LEFT + WIDTH - RIGHT) / 2, bottom + 40, "seconds", size=12.5, anchor="middle"))
    hidden = transfer["seconds_not_hidden"]
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 54:.0f}" width="{WIDTH}" height="{bottom + 54:.0f}" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica Neue, Arial, sans-serif" role="img" '
        'aria-label="One request over two servers: chunks of its prompt, its pages on their way, its tokens and those of others">',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{bottom + 53:.0f}" rx="10" fill="#fff" stroke="{LINE}"/>',
        text(22, 32, f"A prompt of {args.prompt_tokens:,} tokens over two servers", INK, 17, weight=650),
        text(22, 54, "Blue: chunks of the prompt, with their tokens. Orange: pages that the decode server has of it. "
             "A dot is a token when its client receives it."),
        text(22, 72, f"{transfer['bytes'] / 1e6:.0f} MB in {transfer['pages_from_server']} pages; when the prefill server had ended, "
             f"the last of them came within {1000 * hidden:.0f} ms. The dark part is the last page, which the decode server computes."),
    ]
    return "\n".join([*head, *ticks, *parts]) + "\n</svg>\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep")
    parser.add_argument("--model", default="models/reference", help="a directory")
    parser.add_argument("--config", help="a config.json instead, with random weights")
    parser.add_argument("--option", action="append", default=[], help="of every wideep serve; several times")
    parser.add_argument("--dtype", default="bf16", help="of the weights")
    parser.add_argument("--kv-cache-memory", default="1G", help="of each server")
    parser.add_argument("--cores", type=int, nargs=2, default=[0, 1], help="of prompts and of answers")
    parser.add_argument("--streams", type=int, default=4, help="answers that run meanwhile")
    parser.add_argument("--prompt-tokens", type=int, default=2100)
    parser.add_argument("--tokens", type=int, default=16, help="of the answer")
    parser.add_argument("--margin", type=float, default=0.3, help="seconds that are drawn before and after")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="disaggregated.svg")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        measured = measure(args, work)
    pathlib.Path(args.output).write_text(draw(args, *measured))
    print(f"{args.output}: {measured[-1]}")


if __name__ == "__main__":
    main()
