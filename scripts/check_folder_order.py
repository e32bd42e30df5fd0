#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks who includes whom.

The folders of src/ are listed top to bottom in src/CMakeLists.txt. A file in src/<folder> may include
files of its own folder and of folders above it, and the public headers ("wideep/..."). Public headers
include only each other. tools/ and tests/ may include everything that exists.

Prints "file:line: what" for each violation and exits with 1 if there was one.

    python3 scripts/check_folder_order.py [repository]
"""

import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
FOLDER = re.compile(r"^\s*wideep_folder\((\w+)")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def folder_order(root):
    """The folders of src/, top to bottom."""
    lines = (root / "src" / "CMakeLists.txt").read_text().splitlines()
    return [match.group(1) for match in map(FOLDER.match, lines) if match]


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())


def includes(path):
    """(line number, included path) of each include in quotes."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def violation(root, order, where, path, included):
    """Why a file of `where` ("src/ep", "include", "tools", "tests") may not include this; or None."""
    top = included.split("/")[0]
    if (root / "include" / included).is_file():
        return None
    if where == "include":
        return f'a public header includes "{included}", which is not in include/'
    if not (root / "src" / included).is_file():
        beside = path.parent / included
        if not where.startswith("src/") and beside.is_file():
            return None
        return f'"{included}" is neither in include/ nor a path from src/'
    if not where.startswith("src/"):
        return None
    folder = where.removeprefix("src/")
    if top not in order:
        return f'"{included}": folder {top} is not listed in src/CMakeLists.txt'
    if order.index(top) > order.index(folder):
        return f'{folder} includes "{included}", but {top} lies below {folder} in src/CMakeLists.txt'
    return None


def places(root, order):
    """(name, folder) of each place whose files are checked."""
    for name in order:
        yield f"src/{name}", root / "src" / name
    for name in ("include", "tools", "tests"):
        yield name, root / name


def unlisted_folders(root, order):
    for folder in sorted((root / "src").iterdir()):
        if folder.is_dir() and folder.name not in order and source_files(folder):
            yield f"src/CMakeLists.txt:1: folder src/{folder.name} is not listed"


def check(root):
    order = folder_order(root)
    if not order:
        return ["src/CMakeLists.txt:1: no wideep_folder(...) line found"]
    problems = list(unlisted_folders(root, order))
    for where, folder in places(root, order):
        for path in source_files(folder):
            for number, included in includes(path):
                problem = violation(root, order, where, path, included)
                if problem:
                    problems.append(f"{path.relative_to(root)}:{number}: {problem}")
    return problems


def main():
    default = pathlib.Path(__file__).resolve().parent.parent
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    if not (root / "src" / "CMakeLists.txt").is_file():
        print(f"{root}: expected a directory with src/CMakeLists.txt", file=sys.stderr)
        return 2
    problems = check(root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
