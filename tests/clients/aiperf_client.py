# SPDX-License-Identifier: Apache-2.0
"""`aiperf profile` of streamed chats: no request fails, each has the tokens that were asked for.

    aiperf_client.py <base URL> <API key>
"""

import json
import pathlib
import subprocess
import sys
import tempfile

URL, KEY = sys.argv[1:]
MODEL = pathlib.Path(__file__).parents[2] / "models" / "reference"
REQUESTS, TOKENS = 8, 8


def check(what, truth):
    if not truth:
        sys.exit(f"not so: {what}")


with tempfile.TemporaryDirectory() as folder:
    command = [pathlib.Path(sys.executable).with_name("aiperf"), "profile", "--model", "reference",
               "--url", URL.removesuffix("/v1"), "--endpoint-type", "chat", "--streaming",
               "--api-key", KEY, "--request-count", REQUESTS, "--concurrency", 2, "--tokenizer", MODEL,
               "--synthetic-input-tokens-mean", 20, "--output-tokens-mean", TOKENS, "--ui-type", "none",
               "--extra-inputs", "ignore_eos:true"]
    ended = subprocess.run([str(each) for each in command], cwd=folder, capture_output=True, text=True)
    check(f"it ends well: {ended.stdout[-2000:]} {ended.stderr[-2000:]}", ended.returncode == 0)
    [path] = pathlib.Path(folder).glob("artifacts/*/profile_export_aiperf.json")
    report = json.loads(path.read_text())
    check("no request failed", report["request_count"]["avg"] == REQUESTS and not report["error_summary"])
    check("each answer has its tokens", report["total_usage_completion_tokens"]["avg"]
          == REQUESTS * TOKENS)
    # aiperf makes tokens of the text again: sometimes fewer than the model has sampled.
    check("they have come", TOKENS * 0.6 < report["output_token_count"]["avg"] <= TOKENS)
    check("there are times", report["time_to_first_token"]["count"] == REQUESTS)
