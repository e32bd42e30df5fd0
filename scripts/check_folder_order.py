#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the order of includes between folders, and the README's description of the folders.

Order: the folders of src/ are listed top to bottom in src/CMakeLists.txt. A file in src/<folder> may
include files of its own folder and of folders above it, and the public headers ("wideep/..."). Public
headers include only each other. tools/, tests/ and bench/ may include everything that exists.

Circles: no file includes itself by way of others. foo.h and foo.cc count as one file.

Descriptions: the comment above each wideep_folder(...) of src/CMakeLists.txt describes the
folder, and the code map of README.md has the same words in the row `src/<folder>/`, in the same order.

Prints "file:line: what" for each violation and exits with 1 if there was one.

    python3 scripts/check_folder_order.py [repository]
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
FOLDER = re.compile(r"^\s*wideep_folder\((\w+)")
MAP_ROW = re.compile(r"^\| `src/(\w+)/` \| (.*) \|$")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def folder_descriptions(root):
    """Of each folder of src/, top to bottom, the comment directly above its line: {name: text}."""
    descriptions = {}
    comment = []
    for line in (root / "src" / "CMakeLists.txt").read_text().splitlines():
        match = FOLDER.match(line)
        if match:
            descriptions[match.group(1)] = " ".join(comment)
        if line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        else:
            comment = []
    return descriptions


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


def order_problems(root, order):
    for where, folder in places(root, order):
        for path in source_files(folder):
            for number, included in includes(path):
                problem = violation(root, order, where, path, included)
                if problem:
                    yield f"{path.relative_to(root)}:{number}: {problem}"


def file_graph(root, order):
    """{file without suffix: {included file without suffix: "file:line" of the include}}."""
    graph = {}
    for _, folder in places(root, order):
        for path in source_files(folder):
            edges = graph.setdefault(path.relative_to(root).with_suffix(""), {})
            for number, included in includes(path):
                for base in (root / "include", root / "src", path.parent):
                    if (base / included).is_file():
                        found = (base / included).relative_to(root).with_suffix("")
                        edges.setdefault(found, f"{path.relative_to(root)}:{number}")
                        break
    for file, edges in graph.items():
        edges.pop(file, None)  # foo.cc includes foo.h
    return graph


def shortest_circle(graph, start):
    """[start, ..., start] along includes, or None."""
    came_from = {}
    queue = collections.deque([start])
    while queue:
        file = queue.popleft()
        for included in sorted(graph.get(file, {})):
            if included == start:
                circle = [start, file]
                while circle[-1] != start:
                    circle.append(came_from[circle[-1]])
                return circle[::-1]
            if included not in came_from:
                came_from[included] = file
                queue.append(included)
    return None


def circle_problems(root, order):
    """One circle for each group of files that include each other."""
    graph = file_graph(root, order)
    reported = set()
    for file in sorted(graph):
        circle = shortest_circle(graph, file)
        if circle is None or reported.intersection(circle):
            continue
        reported.update(circle)
        names = " -> ".join(str(step) for step in circle)
        yield f"{graph[circle[0]][circle[1]]}: includes go in a circle: {names}"


def description_problems(root, descriptions):
    for name, text in descriptions.items():
        if not text:
            yield f"src/CMakeLists.txt:1: expected a comment above wideep_folder({name}) that describes the folder"
    rows = {}
    for number, line in enumerate((root / "README.md").read_text().splitlines(), start=1):
        match = MAP_ROW.match(line)
        if match:
            rows[match.group(1)] = match.group(2)
            name, found = match.groups()
            expected = descriptions.get(name)
            if expected is None:
                yield f"README.md:{number}: src/CMakeLists.txt lists no folder {name}"
            elif found != expected:
                yield f'README.md:{number}: expected "{expected}" as in src/CMakeLists.txt, found "{found}"'
    for name in descriptions:
        if name not in rows:
            yield f"README.md:1: the code map has no row `src/{name}/`"
    if rows.keys() == descriptions.keys() and list(rows) != list(descriptions):
        yield "README.md:1: the code map's rows are not in the order of src/CMakeLists.txt"


def check(root):
    descriptions = folder_descriptions(root)
    order = list(descriptions)
    if not order:
        return ["src/CMakeLists.txt:1: no wideep_folder(...) line found"]
    return [
        *unlisted_folders(root, order),
        *order_problems(root, order),
        *circle_problems(root, order),
        *description_problems(root, descriptions),
    ]


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
