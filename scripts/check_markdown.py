#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the Markdown of the repository.

Lines have at most 100 columns, except where they cannot be broken: tables, fenced code, lines that
are one link or one image, headings with a link. A relative link points to a file that exists.

Prints "file:line: what" for each violation and exits with 1 if there was one.

    python3 scripts/check_markdown.py [repository]
"""

import pathlib
import re
import subprocess
import sys
import urllib.parse

MAX_COLUMNS = 100
FENCE = re.compile(r"^\s*(```|~~~)")
CODE_SPAN = re.compile(r"`[^`]*`")
# The end of a link: its text may begin on the line before.
LINK = re.compile(r"\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
DEFINITION = re.compile(r"^\s*\[[^\]]+\]:\s+(\S+)")
LINK_ALONE = re.compile(r"^\s*(?:[-*+] )?(?:<?https?://\S+|!?\[[^\]]*\]\(\S+\)|\[[^\]]+\]: \S+)[.,;:]?$")
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)


def markdown_files(root):
    """The Markdown files that git tracks or would add."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        check=True, capture_output=True, text=True).stdout
    paths = sorted({name for name in listed.split("\0") if name})
    return [root / name for name in paths if (root / name).is_file()]


def lines_outside_fences(text):
    """(line number, line) of each line that is no part of fenced code."""
    fence = None
    for number, line in enumerate(text.splitlines(), start=1):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match.group(1)
        elif fence is not None:
            if match and match.group(1) == fence:
                fence = None
        else:
            yield number, line


def may_be_long(line):
    is_table = line.lstrip().startswith("|")
    is_heading_with_link = line.startswith("#") and "](" in line
    return is_table or is_heading_with_link or LINK_ALONE.match(line) is not None


def targets(line):
    """What the line links to."""
    definition = DEFINITION.match(line)
    if definition:
        yield definition.group(1)
    yield from LINK.findall(CODE_SPAN.sub("", line))


def missing(path, target):
    """Whether a file of that name is missing, seen from the file at `path`."""
    if ELSEWHERE.match(target):
        return False
    name = urllib.parse.unquote(target.split("#")[0])
    return not (path.parent / name).exists()


def check(root):
    problems = []
    for path in markdown_files(root):
        name = path.relative_to(root)
        for number, line in lines_outside_fences(path.read_text(encoding="utf-8")):
            if len(line) > MAX_COLUMNS and not may_be_long(line):
                problems.append(f"{name}:{number}: {len(line)} columns, at most {MAX_COLUMNS}")
            for target in targets(line):
                if missing(path, target):
                    problems.append(f"{name}:{number}: links to {target}, which does not exist")
    return problems


def main():
    default = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    if not (root / ".git").exists():
        print(f"{root}: expected the root of a git repository", file=sys.stderr)
        return 2
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
