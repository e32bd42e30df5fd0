# SPDX-License-Identifier: Apache-2.0
"""Streams completions of a file's prompts, many at the same time, for some seconds.

    traffic.py <base URL> <API key> <prompts.jsonl> <seconds>

The prompts are asked for in the order of the file, slowly enough that its subjects follow each
other over the time. SIGTERM ends it early.
"""

import json
import signal
import sys
import threading
import time
import urllib.request

URL, KEY, FILE, SECONDS = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
CLIENTS = 18
START = time.monotonic()
prompts = [json.loads(line)["prompt"] for line in open(FILE, encoding="utf-8")]
failures = []
stopped = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopped.set())


def ask(prompt):
    body = {"model": "reference", "prompt": prompt, "max_tokens": 64, "temperature": 0,
            "ignore_eos": True, "stream": True}
    request = urllib.request.Request(
        URL + "/completions", json.dumps(body).encode(),
        {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        events = [line for line in reply if line.startswith(b"data: ")]
    if events[-1] != b"data: [DONE]\n":
        failures.append(f"a stream ends with {events[-1]}")


def client(number):
    asked = number
    while (passed := time.monotonic() - START) < SECONDS and not stopped.is_set():
        # A window of prompts that moves through the file.
        first = int(passed / SECONDS * (len(prompts) - CLIENTS))
        try:
            ask(prompts[first + asked % CLIENTS])
        except Exception as error:  # reported, whatever it is
            failures.append(repr(error))
            return
        asked += 5
        if number % 3 == 0 and int(passed / 10) % 2 == 1:  # some come and go
            stopped.wait(1.0)


threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
for each in threads:
    each.start()
for each in threads:
    each.join()
if failures:
    sys.exit("\n".join(failures[:3]))
