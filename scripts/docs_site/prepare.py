#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares what Sphinx makes the documentation site of.

The Markdown of the repository is written for its readers there: links go to files, wherever they
are. This copies the pages of navigation.txt into a folder of their own, as the site will have them
(docs/serve.md becomes serve, src/balance/README.md becomes code/balance), and rewrites what they
link to:

- a Markdown file that is a page: the page, with its anchor;
- a picture: the picture, copied beside the pages;
- any other file of the repository: a page that shows it, highlighted, outside the search;
- a folder without a page: a page that lists its files.

A link whose text is the name of a file has the page's name in the navigation as its text. A code
span that names one file of the repository (`src/engine/engine/engine.cc`, or the end of its
path, `engine/engine.cc`) becomes such a link too. Nothing of the site needs the network.

    python3 prepare.py <repository> <folder>

Prints "file: what" for each violation and exits with 1 if there was one: a link to a file that does
not exist, a page of docs/ that navigation.txt lacks.
"""

import os
import pathlib
import posixpath
import re
import shutil
import subprocess
import sys
import urllib.parse

FENCE = re.compile(r"^\s*(```+|~~~+)")
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"(\]\(<?)([^)>\s]+)(>?(?:\s+\"[^\"]*\")?\))")
TO_PAGE = re.compile(r"(?<=\[)(?:docs/)?[\w/]+\.md(?=\]\(<?([^)>\s#]+)[^)]*\))")
LINK_TEXT = re.compile(r"\[(?:[^\[\]]|\[[^\[\]]*\])*\](?=\()")
DEFINITION = re.compile(r"^(\s*\[[^\]]+\]:\s+)(\S+)", re.MULTILINE)
ANCHOR = re.compile(r'<a id="([\w-]+)"></a>')
ELSEWHERE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|#)", re.IGNORECASE)
PICTURES = {".png", ".svg", ".jpg", ".gif"}
LANGUAGES = {".cc": "cpp", ".h": "cpp", ".inc": "cpp", ".c": "c", ".cu": "cuda", ".cuh": "cuda",
             ".py": "python", ".sh": "bash", ".sbatch": "bash", ".json": "json", ".yaml": "yaml",
             ".txt": "text", ".cmake": "cmake", ".js": "javascript", ".css": "css",
             ".html": "html", ".toml": "toml"}
CODE = "code/files"  # the pages that show files


def tracked_files(root):
    """The files that git tracks or would add, as POSIX paths."""
    listed = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True, text=True).stdout
    return sorted(name for name in set(listed.split("\0")) if name and (root / name).is_file())


def read_navigation(path):
    """[(group, [(file, name)])], in the file's order."""
    groups = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith("== "):
            groups.append((line[3:].strip(), []))
            continue
        words = line.split(None, 1)
        if len(words) != 2 or not groups:
            sys.exit(f"{path}:{number}: expected '== group' or 'file  name', found '{line}'")
        groups[-1][1].append((words[0], words[1].strip()))
    return groups


def page_name(file):
    """What the page of a Markdown file is called in the site, without an ending."""
    if file == "README.md":
        return "index"
    name = file[:-len(".md")]
    if name.startswith("docs/"):
        name = name[len("docs/"):]
    if name.startswith("src/"):
        name = "code/" + name[len("src/"):]
    if name == "decisions/README":
        return "decisions/index"
    if name.endswith("/README"):
        name = name[:-len("/README")]
    return name.lower()


class Site:
    """Collects the pages of a site and writes them."""

    def __init__(self, root, output):
        self.root = root
        self.output = output
        self.files = tracked_files(root)
        self.folders = {parent.as_posix() for name in self.files
                        for parent in pathlib.PurePosixPath(name).parents}
        self.by_name = {}
        for name in self.files:
            self.by_name.setdefault(posixpath.basename(name), []).append(name)
        self.pages = {}  # Markdown file: its page
        self.names = {}  # Markdown file: what the navigation calls it
        self.shown = {}  # file or folder that a page shows: that page
        self.problems = []

    def prepare(self, groups):
        in_groups = {file for _, pages in groups for file, _ in pages}
        records = [name for name in self.files
                   if re.fullmatch(r"docs/decisions/\d+.*\.md", name)]
        for name in self.files:
            of_docs = name.startswith("docs/") and name.endswith(".md")
            if of_docs and name not in in_groups and name not in records:
                self.problems.append(f"{name}: in no group of scripts/docs_site/navigation.txt")
        self.problems += [f"scripts/docs_site/navigation.txt: {name} does not exist"
                          for name in in_groups if name not in self.files]
        if self.problems:
            return
        for file in ["README.md", *sorted(in_groups), *records]:
            self.pages[file] = page_name(file)
        self.names = {file: name for _, pages in groups for file, name in pages}
        for file in self.pages:
            text = self.rewrite(file)
            if file == "README.md":
                text += self.contents(groups)
            if file == "docs/decisions/README.md":
                entries = [f"{self.number(name)} <{posixpath.basename(self.pages[name])}>"
                           for name in records]
                text += toctree(entries)
            self.write(self.pages[file] + ".md", text)
        self.show_files()

    def contents(self, groups):
        return "".join(toctree([f"{name} <{self.pages[file]}>" for file, name in pages], group)
                       for group, pages in groups)

    def number(self, record):
        """What the navigation calls a record: its number and its matter in a few words."""
        number, words = posixpath.basename(record)[:-len(".md")].split("-", 1)
        return f"{number} {words.replace('-', ' ')}"

    def rewrite(self, file):
        """The text of a page, with links to pages of the site."""
        out, prose, fence = [], [], None

        def flush():
            if prose:
                out.append(self.rewrite_prose(file, "".join(prose)))
                prose.clear()

        for line in (self.root / file).read_text(encoding="utf-8").splitlines(keepends=True):
            match = FENCE.match(line)
            if fence is None and not match:
                prose.append(line)
                continue
            flush()
            if fence is None:
                fence = match.group(1)
            elif match and match.group(1)[:len(fence)] == fence and not line.strip().strip("`~"):
                fence = None
            out.append(line)
        flush()
        return "".join(out)

    def rewrite_prose(self, file, text):
        """Rewrites the links of text without fenced code, and turns names of files into links."""
        in_links = [match.span() for match in LINK_TEXT.finditer(text)]

        def span(match):
            path = self.file_named(file, match.group(2))
            inside = any(begin <= match.start() < end for begin, end in in_links)
            if path is None or inside:
                return match.group(0)
            return f"[{match.group(0)}](\0{path})"

        # Links first, outside code spans; then the spans themselves.
        parts, position = [], 0
        for match in CODE_SPAN.finditer(text):
            parts.append(self.rewrite_links(file, text[position:match.start()]))
            parts.append(span(match))
            position = match.end()
        parts.append(self.rewrite_links(file, text[position:]))
        text = "".join(parts)
        return re.sub("\0([^)]*)", lambda m: self.relative(file, self.target_of(m.group(1))), text)

    def rewrite_links(self, file, text):
        text = ANCHOR.sub(r"[]{#\1}", text)
        text = TO_PAGE.sub(
            lambda m: self.names.get(self.path_of(file, m.group(1)), m.group(0)), text)
        text = LINK.sub(lambda m: m.group(1) + self.link(file, m.group(2)) + m.group(3), text)
        return DEFINITION.sub(lambda m: m.group(1) + self.link(file, m.group(2)), text)

    def path_of(self, file, target):
        """The path in the repository of what `file` links to."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(file),
                                                 urllib.parse.unquote(target)))

    def link(self, file, target):
        """What a link of `file` to `target` is in the site."""
        if ELSEWHERE.match(target):
            return target
        name, _, anchor = target.partition("#")
        found = self.target_of(self.path_of(file, name))
        if found is None:
            self.problems.append(f"{file}: links to {target}, which does not exist")
            return target
        return self.relative(file, found) + (f"#{anchor}" if anchor else "")

    def relative(self, file, target):
        return posixpath.relpath(target, posixpath.dirname(self.pages[file]) or ".")

    def target_of(self, path):
        """The file in the site that stands for a file or folder of the repository, or None."""
        if path in self.pages:
            return self.pages[path] + ".md"
        if posixpath.join(path, "README.md") in self.pages:
            return self.pages[posixpath.join(path, "README.md")] + ".md"
        if posixpath.splitext(path)[1].lower() in PICTURES and path in self.files:
            copy = path.removeprefix("docs/")
            (self.output / copy).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / path, self.output / copy)
            return copy
        if path not in self.files and path not in self.folders:
            return None
        page = f"{CODE}/{path}/index" if path in self.folders else f"{CODE}/{path}"
        self.shown[path] = page
        return page + ".rst"

    def file_named(self, file, span):
        """The file or folder with a page that a code span names, or None."""
        span = span.strip()
        if "/" not in span or not re.fullmatch(r"[\w./+-]+", span):
            return None
        if span in self.files:
            return span
        if span.endswith("/"):
            folder = span.rstrip("/")
            return folder if posixpath.join(folder, "README.md") in self.pages else None
        of_house = posixpath.join(posixpath.dirname(file), span)
        if of_house in self.files:
            return of_house
        ends = [name for name in self.by_name.get(posixpath.basename(span), [])
                if name.endswith("/" + span)]
        return ends[0] if len(ends) == 1 else None

    def show_files(self):
        """Writes a page for each file and folder that is linked to; a folder's links add more."""
        written = set()
        while len(written) < len(self.shown):
            for path, page in list(self.shown.items()):
                if path in written:
                    continue
                written.add(path)
                head = f":orphan:\n:nosearch:\n\n{path}\n{'=' * len(path)}\n\n"
                if path in self.folders:
                    self.write(page + ".rst", head + self.list_of(path))
                    continue
                copy = self.output / "_files" / path
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.root / path, copy)
                language = LANGUAGES.get(posixpath.splitext(path)[1], "text")
                self.write(page + ".rst", f"{head}.. literalinclude:: /_files/{path}\n"
                                          f"   :language: {language}\n   :linenos:\n")

    def list_of(self, folder):
        """A list of the files in a folder, each with a link to its page."""
        lines = []
        for name in self.files:
            is_picture = posixpath.splitext(name)[1].lower() in PICTURES
            if posixpath.dirname(name) == folder and not is_picture:
                page = posixpath.splitext(self.target_of(name))[0]
                lines.append(f"- :doc:`{posixpath.basename(name)} </{page}>`\n")
        return "".join(lines)

    def write(self, name, text):
        path = self.output / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def toctree(entries, caption=None):
    option = f":caption: {caption}\n" if caption else ""
    return "\n\n```{toctree}\n:hidden:\n" + option + "\n" + "\n".join(entries) + "\n```\n"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(output, ignore_errors=True)
    os.makedirs(output)
    site = Site(root, output)
    site.prepare(read_navigation(pathlib.Path(__file__).with_name("navigation.txt")))
    for problem in site.problems:
        print(problem)
    return 1 if site.problems else 0


if __name__ == "__main__":
    sys.exit(main())
