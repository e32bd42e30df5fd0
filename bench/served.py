# SPDX-License-Identifier: Apache-2.0
"""What benchmarks of servers share: servers that are started and killed, models of a shape with
random weights, streams with the time of each token, and tables."""

import ctypes
import http.client
import json
import mmap
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Of models with random weights: tools in front, and thinking of earlier turns left out, as in the
# templates of models that think.
TEMPLATE = """{{ bos_token }}{% if tools %}# Tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}{% endif %}{% for message in messages %}{% if message.role == 'user' %}<｜User｜>\
{{ message.content }}{% elif message.role == 'tool' %}<｜User｜>[result] {{ message.content }}\
{% elif message.role == 'assistant' %}<｜Assistant｜>{{ message.content.split('</think>')[-1] }}\
{% for call in message.tool_calls or [] %}
<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}{{ eos_token }}{% else %}\
{{ message.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<｜Assistant｜><think>
{% endif %}"""


CONTEXT = 32768  # tokens, at least


def write_shape(config, directory):
    """config.json, for at least CONTEXT tokens, a tokenizer with a text for each of its tokens, and TEMPLATE.
    Returns the directory."""
    shape = json.loads(pathlib.Path(config).read_text())
    for key in ("quantization_config", "bos_token_id", "eos_token_id", "pad_token_id"):
        shape.pop(key, None)
    text = shape.get("text_config", shape)
    text["max_position_embeddings"] = max(text.get("max_position_embeddings", 0), CONTEXT)
    reference = ROOT / "models/reference"
    tokenizer = json.loads((reference / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    ids = set(vocabulary.values()) | {each["id"] for each in tokenizer.get("added_tokens", [])}
    text["vocab_size"] = max(text.get("vocab_size", 0), max(ids) + 1)
    text["eos_token_id"] = 1
    for token in range(max(ids) + 1, text["vocab_size"]):
        vocabulary[f"token{token}"] = token
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(shape))
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "tokenizer_config.json").write_text((reference / "tokenizer_config.json").read_text())
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def huge_pages(size):
    """A view of memory in huge pages, where the kernel has them: there a disk is twice as fast, with less work
    for a processor."""
    huge = 2 << 20
    memory = mmap.mmap(-1, size + huge)
    memory.madvise(mmap.MADV_HUGEPAGE)
    at = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % huge
    return memoryview(memory)[at:at + size]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    """A server in a process group of its own. command: with {port} where that goes."""

    def __init__(self, command, log):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = pathlib.Path(log)
        with self.log.open("w") as out:
            self.process = subprocess.Popen([each.replace("{port}", str(self.port)) for each in command],
                                            stdout=out, stderr=out, start_new_session=True)
        self.wait()

    def wait(self, seconds=1800):
        """Until it answers: /health is 503 or nobody there while the model is loaded."""
        for _ in range(seconds * 10):
            if self.process.poll() is not None:
                raise SystemExit(f"the server has ended:\n{self.log.read_text()[-4000:]}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (OSError, urllib.error.URLError):
                pass
            time.sleep(0.1)
        raise SystemExit(f"the server does not answer:\n{self.log.read_text()[-4000:]}")

    def kill(self):
        """All its processes, by SIGKILL."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            pass
        self.kill()

    def processes(self):
        """Ids of all of its group."""
        ids = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getpgid(int(entry.name)) == self.process.pid:
                    ids.append(int(entry.name))
            except OSError:
                pass
        return ids

    def written_bytes(self):
        """That its processes have sent to disks."""
        return self.io("write_bytes")

    def read_bytes(self):
        """That its processes have read from disks."""
        return self.io("read_bytes")

    def io(self, count):
        total = 0
        for process in self.processes():
            try:
                text = pathlib.Path(f"/proc/{process}/io").read_text()
                total += int(re.search(rf"^{count}: (\d+)", text, re.M)[1])
            except OSError:
                pass
        return total


def post(url, body, timeout=1800):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}: {error.code} {error.read().decode(errors='replace')[:1000]}") from None


def stream(url, body, timeout=1800):
    """Yields (seconds since the request, event) for each event of a stream."""
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
    begin = time.perf_counter()
    connection.request("POST", parts.path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{url}: {answer.status} {answer.read().decode(errors='replace')[:1000]}")
    for line in answer:
        line = line.strip()
        if line.startswith(b"data: ") and line != b"data: [DONE]":
            yield time.perf_counter() - begin, json.loads(line[6:])
    connection.close()


def model_name(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=60) as answer:
        return json.loads(answer.read())["data"][0]["id"]


def print_table(head, rows):
    columns = [[str(row[i]) for row in [head, *rows]] for i in range(len(head))]
    widths = [max(map(len, column)) for column in columns]
    for i, row in enumerate([head, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |")
        if i == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


def model_options(args, work):
    """wideep's options for --model or --config of a benchmark."""
    if args.config:
        directory = write_shape(args.config, pathlib.Path(work) / "model")
        return ["--model", str(directory), "--random-weights"]
    return ["--model", str(args.model)]
