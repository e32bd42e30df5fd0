#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs what the guides show, and compares what they say that it prints.

    scripts/test_docs.py build/wideep

A block of a guide that has lines "$ command" is a transcript: the commands run one after the other
in one folder for the whole page, and each must print the lines below it, but for times and widths
of columns. "$ cat FILE" writes the file instead. Blocks that begin with awk or cat make files, and
run as they are. The table of README.md must have the figures of the demo's first steps.
"""
import difflib
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TRANSCRIPTS = ["docs/balance.md"]
TIME = re.compile(r"\b\d+(\.\d+)? (ns|us|µs|ms|s)\b")


def lines_that_count(text):
    """Times differ from run to run, and with them the widths of their columns."""
    lines = [re.sub(r"\s+", " ", TIME.sub("TIME", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


def blocks(page):
    """The fenced blocks of a page: the number of the first line of each, and its text."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = None
    for number, line in enumerate(lines):
        if not line.startswith("```"):
            continue
        if start is None:
            start = number + 1
        else:
            yield start + 1, lines[start:number]
            start = None


def steps(block):
    """The commands of a transcript, each with what follows it."""
    step = None
    for line in block:
        if line.startswith("$ "):
            if step:
                yield step
            step = [line[2:], []]
        elif step and step[0].endswith("\\"):
            step[0] = step[0][:-1] + line
        elif step:
            step[1].append(line)
    if step:
        yield step


class Session:
    """One folder, in which the commands of a page run."""

    def __init__(self, program, folder):
        self.folder = folder
        self.path = os.path.dirname(os.path.abspath(program)) + os.pathsep + os.environ["PATH"]

    def run(self, command):
        ended = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env={**os.environ, "PATH": self.path},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=300, check=False)
        return ended.stdout

    def check(self, command, shown):
        """Nothing, or how what the command prints differs from what is shown."""
        cat = re.fullmatch(r"cat (\S+)", command)
        if cat:
            with open(os.path.join(self.folder, cat[1]), "w", encoding="utf-8") as file:
                file.write("\n".join(shown) + "\n")
            return []
        printed = lines_that_count(self.run(command))
        return list(difflib.unified_diff(lines_that_count("\n".join(shown)), printed, "shown",
                                         "printed", lineterm="", n=1))


def check_transcripts(program, page):
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        session = Session(program, folder)
        for number, block in blocks(page):
            if block and re.match(r"(awk|cat) ", block[0]):
                session.run("\n".join(block))
            for command, shown in steps(block):
                difference = session.check(command, shown)
                if difference:
                    failures += 1
                    print(f"{page}:{number}: $ {command}")
                    print("\n".join(difference))
    return failures


def ratios(text):
    """The rows on imbalance of what `wideep balance picture` prints, with both figures of each."""
    rows = re.findall(r"^(imbalance ratio, [a-z ]+?) +([\d.]+) +([\d.]+)$", text, re.M)
    return {name: (float(before), float(after)) for name, before, after in rows}


def check_demo(program):
    """The balance of the demo's first run and of the second, which do not depend on time."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        shown = ratios(file.read())
    generate = (f"wideep generate --model {ROOT}/models/reference --prompts "
                f"{ROOT}/demo/prompts.jsonl --max-tokens 48 --ranks 8")
    with tempfile.TemporaryDirectory() as folder:
        session = Session(program, folder)
        session.run(f"{generate} --routing-log before.json --expert-statistic-path statistics "
                    "--expert-statistic-iter-range 0-40")
        session.run("wideep balance plan --stats statistics --ep-size 8 --num-slots 40 "
                    "--output plan.yaml")
        session.run(f"{generate} --load-balancer plan.yaml --routing-log after.json")
        printed = session.run("wideep balance picture --before before.json --after after.json "
                              "--output report.html")
    if shown and shown == ratios(printed):
        return 0
    print(f"README.md: the demo's table has {shown}, and the demo prints {ratios(printed)}")
    return 1


def main():
    program = sys.argv[1]
    failures = sum(check_transcripts(program, page) for page in TRANSCRIPTS) + check_demo(program)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
