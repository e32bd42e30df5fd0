# SPDX-License-Identifier: Apache-2.0
"""Talks to `wideep chat` through a pseudo terminal, as people do, and through pipes.

    python3 chat.py <wideep> <model> <work directory> <url of a server, key "secret"> <wrong_server.py>
"""

import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time
import urllib.request

from terminal import Terminal, descendants, is_alive, wait_until

wideep, model, work, url, wrong_server = sys.argv[1:]
work = pathlib.Path(work)
state = work / "state"
environment = {"XDG_STATE_HOME": str(state), "TMPDIR": str(work), "HOME": str(work)}


def chat(*options, **more):
    return Terminal([wideep, "chat", *options], {**environment, **more})


def begun(*options, **more):
    terminal = chat(*options, **more)
    terminal.expect(">>> ")
    return terminal


def piped(text, *options):
    return subprocess.run(
        [wideep, "chat", *options],
        input=text,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **environment},
    )


def saved(terminal, name):
    file = work / name
    file.unlink(missing_ok=True)
    terminal.say(f"/save {file}", "messages")
    return json.loads(file.read_text())


def texts(file):
    return [message["content"] for message in file["messages"]]


def own_engine():
    terminal = begun(model)
    terminal.say("/set max_tokens 12", "max_tokens = 12")
    figures = terminal.say("Hello", "12 tokens")
    assert "tokens/s" in figures and "first after" in figures and "cut off" in figures, figures
    first = saved(terminal, "first.json")
    assert [m["role"] for m in first["messages"]] == ["user", "assistant"]
    assert first["settings"] == {"max_tokens": 12}
    again = terminal.say("/regen", "12 tokens")
    assert "cached)" in again, again
    assert saved(terminal, "again.json") == first, "the model chooses the likeliest token"

    terminal.type('"""\r')
    terminal.expect("... ")
    terminal.type("line one\r")
    terminal.expect("... ")
    terminal.say('  zwei \u00e4\u4f60"""', "12 tokens")
    terminal.type("ends with \\\r")
    terminal.expect("... ")
    terminal.say("two", "12 tokens")
    said = texts(saved(terminal, "lines.json"))[2::2]
    assert said == ["line one\n  zwei \u00e4\u4f60", "ends with \ntwo"], said

    # What is pasted is one message, and its signs are no keys.
    pasted = '"""Sums."""\r\r\tx = 1\x04\x1b[A\\\rand \u00e4'
    # An escape in it, and an end in two parts, are not the end of what is a paste.
    terminal.type(f"\x1b[200~{pasted}\x1b\x1b[20")
    time.sleep(0.2)
    terminal.type("1~")
    terminal.expect("and \u00e4")
    terminal.say(" so on", "12 tokens")
    said = texts(saved(terminal, "pasted.json"))[-2]
    assert said == '"""Sums."""\n\n\tx = 1[A\\\nand \u00e4 so on', repr(said)
    terminal.say("/undo", "6 messages stay")

    terminal.say("/regn", "did you mean /regen?")
    terminal.say("/set temperature hot", "the server checks it")
    refused = terminal.say("Hello", "error: ")
    assert "temperature" in refused and "/set FIELD alone" in refused, refused
    terminal.say("/set temperature", "as the server has it")
    terminal.say("/regen", "12 tokens")
    assert texts(saved(terminal, "lines.json"))[-2] == "Hello"
    terminal.say("/undo", "6 messages stay")
    terminal.say("/system Be short", "is set")
    shown = terminal.say("/show", "settings")
    assert "Be short" in shown and "127.0.0.1" in shown, shown
    (work / "note.txt").write_text("a note")
    terminal.say(f"/read {work}/note.txt", "6 bytes go with")
    terminal.say("What is it?", "12 tokens")
    last = saved(terminal, "read.json")
    assert texts(last)[-2] == "File note.txt:\na note\n\nWhat is it?" and last["system"] == "Be short"
    terminal.say("/clear", "forgotten")
    terminal.say("/regen", "no message")
    terminal.say(f"/load {work}/read.json", f"{len(last['messages'])} messages")
    assert saved(terminal, "loaded.json") == last
    terminal.say(f"/save {work}/note.txt", "is no chat of /save")
    assert (work / "note.txt").read_text() == "a note"
    terminal.say(f"/load {work}/missing", "error: ")
    terminal.say("/help", "/system TEXT")

    processes = descendants(terminal.pid)
    assert processes, "the engine is a child"
    terminal.type("\x00\x04")  # the first is nothing, and the second not quoted by it
    assert terminal.wait() == 0
    wait_until(lambda: not any(map(is_alive, processes)), f"processes stay: {processes}")
    assert "\x1b[2m" in terminal.raw
    assert not list(work.glob("wideep-chat-*.log")), "the log of an engine that has not failed stays"


def odd_names():
    """The engine's address is found whatever its model is called."""
    terminal = begun(model, "--served-model-name", "org/v1/http://m (context 3")
    terminal.say("/show", "org/v1/http://m (context 3")
    terminal.type("/bye\r")
    assert terminal.wait() == 0


def no_files():
    """What has no end cannot hold the chat up, and nothing is written over it."""
    pipe = work / "pipe"
    if not pipe.exists():
        os.mkfifo(pipe)
    evil = work / "evil.json"
    evil.write_text('{"messages": [{"role": "user", "content": "x", "\\u001b[2Jowned": 1}, "\\u001b[2J"]}')
    terminal = begun("--url", url, "--api-key", "secret")
    for command in ("read", "load", "save"):
        terminal.say(f"/{command} {pipe}", "expected a file, found a pipe")
        terminal.say(f"/{command} /dev/null", "expected a file, found a pipe or a device")
        terminal.say(f"/{command} {work}", "expected a file, found a directory")
    (work / "latin1.txt").write_bytes(b"f\xfcr")
    terminal.say(f"/read {work}/latin1.txt", "expected UTF-8, found another byte at 1")
    before = len(terminal.raw)
    terminal.say(f"/load {evil}", "messages[1]")
    assert "\x1b[2J" not in terminal.raw[before:], terminal.raw[before:]
    terminal.type("/bye\r")
    assert terminal.wait() == 0 and stat.S_ISFIFO(pipe.stat().st_mode)


def history():
    file = state / "wideep" / "chat_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600, oct(file.stat().st_mode)
    terminal = begun("--url", url, "--api-key", "secret", "--set", "max_tokens=3")
    terminal.say("the last line", "3 tokens")
    terminal.type("\x1b[A")  # the arrow up
    terminal.expect("the last line")
    terminal.say("", "3 tokens")
    assert texts(saved(terminal, "history.json"))[::2] == ["the last line"] * 2
    for i in range(1100):
        terminal.type(f"/system {i}\r")
        terminal.expect("is set")
    terminal.type("/bye\r")
    assert terminal.wait() == 0
    lines = file.read_text().splitlines()
    assert len(lines) == 1001 and "1099" in lines[-2], (len(lines), lines[-2:])
    # Two chats at a time keep the lines of both.
    both = [begun("--url", url, "--api-key", "secret") for _ in range(2)]
    for i, terminal in enumerate([*both, both[0]]):
        terminal.say(f"/system of chat {i}", "is set")
    for terminal in both:
        terminal.type("/bye\r")
        assert terminal.wait() == 0
    lines = file.read_text().splitlines()
    said = [f"/system\\040of\\040chat\\040{i}" for i in range(3)]
    assert lines[-5:] == [*said, "/bye", "/bye"] or lines[-4:] == [*said, "/bye"], lines[-6:]
    broken = "no history\n"
    file.write_text(broken)
    terminal = begun("--url", url, "--api-key", "secret")
    assert "is no history" in terminal.shown, terminal.tail()
    terminal.type("/bye\r")
    assert terminal.wait() == 0 and file.read_text() == broken

    # A link is followed; one to /dev/null keeps nothing.
    elsewhere = work / "elsewhere"
    elsewhere.unlink(missing_ok=True)
    for target in (elsewhere, pathlib.Path("/dev/null")):
        file.unlink()
        file.symlink_to(target)
        if target == elsewhere:
            elsewhere.write_text(lines[0] + "\n")
        terminal = begun("--url", url, "--api-key", "secret")
        terminal.say("/set top_k 7", "top_k = 7")
        terminal.type("/bye\r")
        assert terminal.wait() == 0 and file.is_symlink(), target
    assert "top_k" in elsewhere.read_text()
    assert not list(file.parent.glob("chat_history.*")), "temporary files stay"
    file.unlink()


def running():
    request = urllib.request.Request(
        url.removesuffix("/v1") + "/metrics", headers={"Authorization": "Bearer secret"}
    )
    with urllib.request.urlopen(request, timeout=10) as reply:
        for line in reply.read().decode().splitlines():
            if line.startswith("wideep_num_requests_running"):
                return float(line.split()[-1])
    raise AssertionError("no wideep_num_requests_running")


def interrupts():
    # The second answer follows a part of the first, whose length nobody knows: it may be short.
    endless = ("--set", "ignore_eos=true")
    terminal = begun("--url", url, "--api-key", "secret", *endless, NO_COLOR="1")
    for _ in range(2):
        terminal.type("Hello\r")
        wait_until(lambda: running() == 1, "the request runs")
        terminal.read(0.5)
        terminal.type("\x03")
        terminal.expect("stopped; /regen")
        terminal.expect(">>> ")
        wait_until(lambda: running() == 0, "the server goes on with what nobody reads")
    terminal.type("half a line")
    terminal.expect("half a line")
    terminal.type("\x03")
    terminal.expect(">>> ")
    terminal.type("\x03")
    terminal.expect("Ctrl-C again")
    terminal.expect(">>> ")
    terminal.say("/set max_tokens 3", "= 3")  # what was typed before is forgotten
    terminal.say("Hello", "3 tokens")
    terminal.type("\x03")
    terminal.expect("Ctrl-C again")
    terminal.type("\x03")
    assert terminal.wait() == 0
    assert "\x1b[2m" not in terminal.raw, "colours in spite of NO_COLOR"


def ends():
    """The engine ends with the chat, however that ends, and also while it answers."""
    for number, code in ((signal.SIGKILL, -9), (signal.SIGTERM, 130), (signal.SIGHUP, 130)):
        for answers in (False, True):
            terminal = begun(model, "--ranks", "2")
            if answers:
                terminal.type("Hello\r")
                terminal.read(1)
            processes = descendants(terminal.pid)
            assert len(processes) >= 3, processes
            terminal.kill(number)
            assert terminal.wait() == code, terminal.status
            wait_until(lambda: not any(map(is_alive, processes)), f"{number}: {processes} stay")
    for log in work.glob("wideep-chat-*.log"):  # nobody was there to remove that of SIGKILL
        log.unlink()
    terminal = begun(model)
    os.kill(descendants(terminal.pid)[0], signal.SIGKILL)
    terminal.type("Hello\r")
    terminal.expect("the engine was killed by signal 9")
    assert terminal.wait() == 1
    kept = list(work.glob("wideep-chat-*.log"))
    assert len(kept) == 1, "the log of a failure is kept"
    kept[0].unlink()


def pipes():
    short = ("--set", "max_tokens=5")
    plain = piped("Hello\n", model, *short)
    assert plain.returncode == 0 and plain.stdout.endswith("\n"), plain
    assert "\x1b" not in plain.stdout and "tokens/s" not in plain.stdout
    remote = piped("Hello", "--url", url, "--api-key", "secret", *short)
    assert remote.stdout == plain.stdout, (remote, plain)
    lines = piped("Hello\n\nHello\n", model, "--each-line", *short)
    assert lines.returncode == 0 and lines.stdout.startswith(plain.stdout), lines
    assert lines.stdout.count("\n") >= 2
    for options, complaint in (
        ([], "MODEL is required"),
        (["--url", "https://x"], "https is not built in"),
        (["--url", "x"], "--url: x: expected http://"),
        (["--url", url, "--max-queue", "3"], "--max-queue: is for an engine"),
        ([str(work / "nothing")], "nothing"),
        ([model, "--set", "stream=false"], "the chat itself sets"),
        ([model, "--config", str(work / "no.yaml")], "no.yaml"),
    ):
        wrong = piped("Hello", *options)
        assert wrong.returncode == 2 and complaint in wrong.stderr, wrong
        assert wrong.stdout == ""
    latin1 = subprocess.run(
        [wideep, "chat", "m", "--url", url, "--api-key", "secret"], input=b"f\xfcr", capture_output=True
    )
    assert latin1.returncode == 2 and b"UTF-8, found another byte at 1" in latin1.stderr, latin1

    # A key and options from files, for an own engine and for a server.
    key, file = work / "key", work / "chat.yaml"
    key.write_text("secret\n")
    file.write_text(f"model: {model}\napi_key_file: {key}\nset: [max_tokens=5]\nport: 1\n")
    own = piped("Hello", "--options-file", str(file), "--port", "0")
    assert own.returncode == 0 and own.stdout == plain.stdout, own
    there = piped("Hello", "--url", url, "--api-key-file", str(key), *short)
    assert there.stdout == plain.stdout, there
    file.write_text("modle: x\n")
    wrong = piped("Hello", "--options-file", str(file))
    assert wrong.returncode == 2 and "did you mean 'model'?" in wrong.stderr, wrong
    empty = piped(" \n", "--url", url, "--api-key", "secret")
    assert empty.returncode == 2 and "found nothing" in empty.stderr, empty
    assert not list(work.glob("wideep-chat-*.log"))


def wrong_servers():
    server = subprocess.Popen(
        [sys.executable, wrong_server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    base = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    for wrong, stdout, complaint in (
        ("dies", "half an ans\n", "the reply breaks off"),
        ("ends-early", "half an ans\n", "the answer breaks off"),
        ("no-key", "", "(401): wrong key; give the server's key with --api-key"),
        ("busy", "", "(429): too many; try again in 7 s"),
        ("evil-refusal", "", "(400): [2J]0;owned31mtext"),
        ("endless-line", "", "more than 8 MiB"),
        ("endless-chunk", "", "more than 8 MiB"),
        ("endless-header", "", "reply"),
        ("no-json", "", "an event that is no JSON: {[2J"),
        ("error-event", "half\n", "the server has given up: out of memory"),
        ("no-http", "", "not HTTP"),
    ):
        result = piped("x", "--url", f"{base}/{wrong}")
        assert result.returncode == 1 and complaint in result.stderr, (wrong, result)
        assert result.stdout == stdout, (wrong, result)
        assert "\x1b" not in result.stderr, result
        assert result.stderr.count("\n") == 1, result

    whole = piped("x", "--url", f"{base}/stays-open")  # within the time of piped()
    assert whole.returncode == 0 and whole.stdout == "whole\n", whole

    # At a terminal the chat goes on, and nothing that a server sends drives the terminal.
    for wrong, shown in (
        ("evil", "[2J]0;owned31mtext"),
        ("dies", "breaks off"),
        ("busy", "try again in 7 s"),
        ("evil-refusal", "[2J]0;owned31mtext"),
    ):
        terminal = begun("--url", f"{base}/{wrong}")
        before = len(terminal.raw)
        terminal.say("x", shown)
        for evil in ("\x1b[2J\x1b]", "\x1b]0;", "\x07", "\x9b", "\u202e"):
            assert evil not in terminal.raw[before:], (wrong, evil)
            assert evil not in terminal.raw[:before].replace("\x1b[2J", ""), (wrong, evil)
        terminal.say("/show", "messages")
        terminal.type("/bye\r")
        assert terminal.wait() == 0

    terminal = begun("--url", f"{base}/thinks")
    answer = terminal.say("x", "4 tokens")
    assert "thought for" in answer and "2 parts" in answer and "let me see" not in answer, answer
    assert "Forty-two." in answer and "prompt 9 tokens (8 cached)" in answer, answer
    assert "let me see" in terminal.say("/think", "text")
    assert texts(saved(terminal, "thinks.json"))[1] == "\n\nForty-two."
    terminal.type("/quit\r")
    assert terminal.wait() == 0
    server.stdin.close()
    server.wait()


for test in (own_engine, odd_names, no_files, history, interrupts, ends, pipes, wrong_servers):
    print(test.__name__, flush=True)
    test()
