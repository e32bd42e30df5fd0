#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the guides show, and compares what they say that it prints.

    scripts/test_docs.py build/wideep [page...]

A block of a guide that has lines "$ command" is a transcript: the commands run one after the other
in one folder for the whole page, with AVX2, and each must print the lines below it, but for times, widths of
columns and what only this machine has (MACHINE). A line "..." stands for any lines, "..." within a
line for any text, and where nothing is shown, nothing is compared. "$ cat FILE" writes the file
instead. Blocks that begin with awk or cat make files, and run as they are. Servers run until the
end of the page, or until another one takes their place.

Every command of every page, transcript or not, may only have options that its --help lists. The
table of README.md must have the rows that the demo writes, and its figures of balance.
"""
import difflib
import glob
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DATA = os.environ.get("WIDEEP_DATA_DIR", "")
PAGES = ["README.md", "cluster/README.md"] + sorted(
    os.path.relpath(page, ROOT) for page in glob.glob(os.path.join(ROOT, "docs", "*.md")))
TIME = re.compile(r"\b\d+(\.\d+)? (ns|us|µs|ms|s)\b")
# What `wideep doctor` prints of the machine, and of a model beside the machine's memory and cores.
MACHINE = re.compile(r"Machine$|processor |cores |caches |instruction sets |avx2 |ref |memory +\S+ [KMG]iB|"
                     r"memory limit |huge pages |/dev/shm |NVIDIA |ranks +\d+ on |usable |KV cache |"
                     r"warning: \d+ ranks share |speed \(|advice: use --ranks ")
MEMORY = re.compile(r"\b\d+\.\d+ [KMG]iB(?= can be used)")
# Commands of other programs, which are not here.
OTHERS = re.compile(r"export |claude$|WIDEEP_DATA_DIR=\S+ python |wideep route --replica http://a:")


def lines_that_count(lines):
    """Times differ from run to run, and with them the widths of their columns."""
    lines = [re.sub(r"\s+", " ", MEMORY.sub("", TIME.sub("TIME", line))).strip() for line in lines]
    return [line for line in lines if line and not MACHINE.match(line)]


def agree(shown, printed):
    """Whether the lines are those that are shown, in which "..." is anything."""
    pattern = ""
    for line in shown:
        pattern += ("(?:.*\n)*" if line == "..."
                    else ".*".join(re.escape(part) for part in line.split("...")) + "\n")
    return re.fullmatch(pattern, "".join(line + "\n" for line in printed)) is not None


def blocks(page):
    """The fenced blocks of a page: the number of the first line of each, and its lines."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.lstrip().startswith("```"):
            continue
        if start is None:
            start = number + 1
        else:
            yield start + 1, lines[start:number]
            start = None


def steps(block):
    """The commands of a transcript, each with the lines that follow it."""
    step = None
    for line in block:
        if line.startswith("$ "):
            if step:
                yield step
            step = [line[2:], []]
        elif step and step[0].endswith("\\"):
            step[0] = step[0][:-1] + line
        elif step and step[0].count("'") % 2:
            step[0] += "\n" + line
        elif step:
            step[1].append(line)
    if step:
        yield step


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Session:
    """One folder, in which the commands of a page run, with the files that guides speak of."""

    def __init__(self, program, folder):
        self.folder = folder
        self.path = os.path.dirname(os.path.abspath(program)) + os.pathsep + os.environ["PATH"]
        self.port = free_port()
        self.server = None
        os.symlink(os.path.join(ROOT, "models"), os.path.join(folder, "models"))
        if DATA:
            trace = "routing_trace_gptoss20b"
            os.symlink(os.path.join(DATA, trace), os.path.join(folder, trace))
            os.mkdir(os.path.join(folder, "Qwen3-30B-A3B"))
            os.symlink(os.path.join(DATA, "model_configs", "Qwen--Qwen3-30B-A3B_config.json"),
                       os.path.join(folder, "Qwen3-30B-A3B", "config.json"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop_server()

    def start(self, command):
        variables = {**os.environ, "PATH": self.path, "WIDEEP_ISA": "avx2"}
        if command.startswith("wideep doctor "):
            del variables["WIDEEP_ISA"]  # it would advise against it
        return subprocess.Popen(
            ["bash", "-c", command], cwd=self.folder, env=variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            process_group=0)

    def run(self, command):
        process = self.start(command)
        try:
            return process.communicate(timeout=300)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # a server that a guide starts, for one
            return process.communicate(timeout=60)[0] + "\n(has not ended within 300 s)"

    def serve(self, command):
        """Starts a server in the place of the one before, and waits until it answers."""
        self.stop_server()
        self.server = self.start(f"exec {command} --port {self.port} 2>server.log")
        until = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return []
            except OSError:
                if self.server.poll() is not None or time.monotonic() > until:
                    with open(os.path.join(self.folder, "server.log"), encoding="utf-8") as log:
                        return log.read().splitlines()
            time.sleep(0.1)

    def stop_server(self):
        if self.server:
            self.server.terminate()
            self.server.wait(timeout=60)
            self.server = None

    def check(self, command, shown):
        """Nothing, or how what the command prints differs from what is shown."""
        cat = re.fullmatch(r"cat (\S+)", command)
        if cat:
            with open(os.path.join(self.folder, cat[1]), "w", encoding="utf-8") as file:
                file.write("\n".join(shown) + "\n")
            return []
        if command.startswith("wideep serve "):
            return self.serve(command)
        command = command.replace("127.0.0.1:8000", f"127.0.0.1:{self.port}")
        printed = lines_that_count(self.run(re.sub(r"^curl ", "curl -sS ", command)).splitlines())
        shown = lines_that_count(shown)
        if not shown or agree(shown, printed):
            return []
        return list(difflib.unified_diff(shown, printed, "shown", "printed", lineterm="", n=1))


def wants_data(command):
    return "routing_trace" in command or "Qwen3-30B-A3B" in command


def check_transcripts(program, page):
    failures = 0
    with tempfile.TemporaryDirectory() as folder, Session(program, folder) as session:
        for number, block in blocks(page):
            if block and re.match(r"(awk|cat) ", block[0]):
                session.run("\n".join(block))
            for command, shown in steps(block):
                if OTHERS.match(command) or (wants_data(command) and not DATA):
                    continue
                difference = session.check(command, shown)
                if difference:
                    failures += 1
                    print(f"{page}:{number}: $ {command}")
                    print("\n".join(difference))
    return failures


def commands(page):
    """The commands of wideep in a page's blocks: the number of the block's line, and the words."""
    for number, block in blocks(page):
        text = "\n".join(line.removeprefix("$ ") for line in block).replace("\\\n", " ")
        for line in text.splitlines():
            found = re.match(r"\s*(?:build/)?wideep ([a-z].*)", re.split(r"\s#\s|2>|\|", line)[0])
            if found:
                yield number, found[1].split()


class Helps:
    """What `wideep COMMAND --help` lists."""

    def __init__(self, program):
        self.program = program
        self.texts = {}

    def of(self, name):
        if name not in self.texts:
            ended = subprocess.run([self.program, *name, "--help"], capture_output=True, text=True,
                                   check=False)
            self.texts[name] = ended.stdout if ended.returncode == 0 else ""
        return self.texts[name]

    def wrong_words(self, words):
        """Options that the command does not have, and commands that there are not."""
        name = ()
        early = []  # options of `wideep bench` may stand before the benchmark that they are of
        for word in words:
            found = re.match(r"\[?(--[a-z][a-z_-]*)", word)
            option = found and found[1].replace("_", "-")
            if option and option not in self.options(name):
                if name == ("bench",):
                    early.append(option)
                else:
                    yield f"wideep {' '.join(name)} has no option {option}"
            elif not option and re.search(rf"^  (\S+, )*{re.escape(word)}(,|  |$)", self.of(name), re.M):
                name += (word,)
            elif "SUBCOMMAND" in self.of(name) and word == words[len(name)] and not option:
                yield f"there is no command wideep {' '.join((*name, word))}"
        known = {each for end in range(len(name) + 1) for each in self.options(name[:end])}
        for option in early:
            if option not in known:
                yield f"wideep {' '.join(name)} has no option {option}"

    def options(self, name):
        return re.findall(r"--[a-z][a-z-]*", self.of(name))


def check_options(page, helps):
    failures = 0
    for number, words in commands(page):
        for wrong in helps.wrong_words(words):
            failures += 1
            print(f"{page}:{number}: {wrong}")
    return failures


def check_families():
    """README.md counts the families that docs/models.md has a row for."""
    with open(os.path.join(ROOT, "docs", "models.md"), encoding="utf-8") as file:
        rows = len(re.findall(r"^\| `[a-z0-9_]+`.*\| \d+ \|$|^\| `[a-z0-9_]+`.*\| as V3 \|$", file.read(), re.M))
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        counted = int(re.search(r"(\d+) families as published", file.read())[1])
    if rows == counted:
        return 0
    print(f"README.md counts {counted} families, and docs/models.md has {rows}")
    return 1


def figures(text):
    """The demo's last table: [(title of the part, row, figures)], from a text that has it."""
    found = []
    part = ""
    for line in text.splitlines():
        if re.match(r"\d+ ranks, ", line):
            part = line
        row = re.match(r"  (\w.*?) +([\d.]+) +([\d.]+)$", line)
        if part and row:
            found.append((part, row[1], row.group(2, 3)))
    return found


def check_demo(program):
    """README.md has the demo's table: all rows, and the figures that do not depend on time."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        shown = figures(file.read())
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "WIDEEP": os.path.abspath(program), "WIDEEP_ISA": "avx2",
                     "DEMO_OUT": folder}
        run = subprocess.run([os.path.join(ROOT, "demo", "run.sh")], env=variables, text=True,
                             capture_output=True, timeout=900)
        if run.returncode != 0:
            print(f"demo/run.sh: exit code {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
            return 1
        with open(os.path.join(folder, "figures.txt"), encoding="utf-8") as file:
            printed = figures(file.read())
    def steady(rows):
        return [(part, row, found if ", a plan" in part and row.startswith("imbalance") else None)
                for part, row, found in rows]
    if shown and steady(shown) == steady(printed):
        return 0
    print(f"README.md: the demo's table has {shown}, and the demo writes {printed}")
    return 1


def main():
    program, *chosen = sys.argv[1:]
    failures = 0
    helps = Helps(program)
    for page in chosen or PAGES:
        failures += check_options(page, helps) + check_transcripts(program, page)
    if not chosen:
        failures += check_families() + check_demo(program)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
