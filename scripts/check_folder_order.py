#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the order of includes between houses and rooms, and what describes them.

Order: the houses of src/ are listed top to bottom in src/CMakeLists.txt, the rooms of a house in
src/<house>/CMakeLists.txt. A file may include files of its own room, of the rooms above it, and the
public headers ("wideep/..."). Public headers include only each other. tools/, tests/ and bench/ may
include everything that exists. An include names the room, since each house is an include path: no
two rooms share a name.

Circles: no file includes itself by way of others. foo.h and foo.cc count as one file.

Descriptions: the comment above each wideep_house(...) and wideep_room(...) describes it, and the
code map of README.md has the same words in the rows `src/<house>/` and `src/<house>/<room>/`, in the
same order. src/<house>/README.md speaks of each of its rooms as `<room>/`.

Prints "file:line: what" for each violation and exits with 1 if there was one.

    python3 scripts/check_folder_order.py [repository]
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"')
PLACE = re.compile(r"^\s*wideep_(house|room)\((\w+)")
MAP_ROW = re.compile(r"^\| \**`src/([\w/]+)/`\** \| \**(.*?)\** \|$")
SOURCES = {".h", ".cc", ".cu", ".cuh", ".inc"}


def listed(root, file):
    """(kind, name, comment directly above its line) of each house and room that the file lists."""
    comment = []
    for line in (root / file).read_text().splitlines():
        match = PLACE.match(line)
        if match:
            yield match.group(1), match.group(2), " ".join(comment)
        if line.startswith("#"):
            comment.append(line.removeprefix("#").strip())
        else:
            comment = []


def descriptions_of(root):
    """Of each house and room, top to bottom, by its path in src/: {path: text}."""
    descriptions = {}
    for kind, name, text in listed(root, "src/CMakeLists.txt"):
        descriptions[name] = text
        if kind == "house":
            for _, room, of_room in listed(root, f"src/{name}/CMakeLists.txt"):
                descriptions[f"{name}/{room}"] = of_room
    return descriptions


def is_room(path, descriptions):
    return not any(other.startswith(path + "/") for other in descriptions)


def source_files(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())


def includes(path):
    """(line number, included path) of each include in quotes."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1)


def violation(root, rooms, where, path, included):
    """Why a file of `where` ("src/exchange/ep", "include", "tests") may not include this; or None."""
    if (root / "include" / included).is_file():
        return None
    if where == "include":
        return f'a public header includes "{included}", which is not in include/'
    top = included.split("/")[0]
    names = [room.split("/")[-1] for room in rooms]
    found = rooms[names.index(top)] if top in names else None
    if found is None or not (root / "src" / found).parent.joinpath(included).is_file():
        # tools/ is an include path of its folders, and of the tests of what they share.
        beside = (path.parent / included, root / "tools" / included)
        if not where.startswith("src/") and any(file.is_file() for file in beside):
            return None
        return f'"{included}" is neither in include/ nor a path that begins with a room of src/'
    if not where.startswith("src/"):
        return None
    room = where.removeprefix("src/")
    if rooms.index(found) > rooms.index(room):
        return f'{room} includes "{included}", but {found} lies below {room}'
    return None


def places(root, rooms):
    """(name, folder) of each place whose files are checked."""
    for name in rooms:
        yield f"src/{name}", root / "src" / name
    for name in ("include", "tools", "tests"):
        yield name, root / name


def unlisted_files(root, rooms):
    for path in source_files(root / "src"):
        room = path.relative_to(root / "src")
        if not any(room.is_relative_to(each) for each in rooms):
            yield f"{path.relative_to(root)}:1: is in no room that a CMakeLists.txt of src/ lists"


def order_problems(root, rooms):
    names = collections.Counter(room.split("/")[-1] for room in rooms)
    for name, count in names.items():
        if count > 1:
            yield f"src/CMakeLists.txt:1: {count} rooms are called {name}; includes name the room alone"
    for where, folder in places(root, rooms):
        for path in source_files(folder):
            for number, included in includes(path):
                problem = violation(root, rooms, where, path, included)
                if problem:
                    yield f"{path.relative_to(root)}:{number}: {problem}"


def file_graph(root, rooms):
    """{file without suffix: {included file without suffix: "file:line" of the include}}."""
    graph = {}
    above = sorted({(root / "src" / room).parent for room in rooms})
    for _, folder in places(root, rooms):
        for path in source_files(folder):
            edges = graph.setdefault(path.relative_to(root).with_suffix(""), {})
            for number, included in includes(path):
                for base in (root / "include", *above, path.parent, root / "tools"):
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


def circle_problems(root, rooms):
    """One circle for each group of files that include each other."""
    graph = file_graph(root, rooms)
    reported = set()
    for file in sorted(graph):
        circle = shortest_circle(graph, file)
        if circle is None or reported.intersection(circle):
            continue
        reported.update(circle)
        names = " -> ".join(str(step) for step in circle)
        yield f"{graph[circle[0]][circle[1]]}: includes go in a circle: {names}"


def description_problems(root, descriptions):
    for path, text in descriptions.items():
        if not text:
            yield f"src/CMakeLists.txt:1: expected a comment above the line of {path} that describes it"
    rows = {}
    for number, line in enumerate((root / "README.md").read_text().splitlines(), start=1):
        match = MAP_ROW.match(line)
        if match:
            path, found = match.groups()
            rows[path] = found
            expected = descriptions.get(path)
            if expected is None:
                yield f"README.md:{number}: no CMakeLists.txt of src/ lists {path}"
            elif found != expected:
                yield f'README.md:{number}: expected "{expected}" as in CMakeLists.txt, found "{found}"'
    for path in descriptions:
        if path not in rows:
            yield f"README.md:1: the code map has no row `src/{path}/`"
    if rows.keys() == descriptions.keys() and list(rows) != list(descriptions):
        yield "README.md:1: the code map's rows are not in the order of the CMakeLists.txt"


def house_problems(root, descriptions):
    """Of the README of each house."""
    for path in descriptions:
        if "/" not in path and not is_room(path, descriptions):
            readme = root / "src" / path / "README.md"
            text = readme.read_text() if readme.is_file() else ""
            for room in descriptions:
                if room.startswith(path + "/") and f"`{room.split('/')[1]}/`" not in text:
                    yield f"src/{path}/README.md:1: does not speak of `{room.split('/')[1]}/`"


def check(root):
    descriptions = descriptions_of(root)
    rooms = [path for path in descriptions if is_room(path, descriptions)]
    if not rooms:
        return ["src/CMakeLists.txt:1: no wideep_house(...) line found"]
    return [
        *unlisted_files(root, rooms),
        *order_problems(root, rooms),
        *circle_problems(root, rooms),
        *description_problems(root, descriptions),
        *house_problems(root, descriptions),
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
