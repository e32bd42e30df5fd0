#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks a site of HTML pages: nothing in it points nowhere, and nothing needs the network.

- Every relative link leads to a file of the site, and its anchor is an element of that page.
- No link is absolute, so that the site works under any path, and from file://.
- Scripts, style sheets, pictures and fonts are files of the site.

    python3 check.py <folder>

Prints "page: what" for each violation and exits with 1 if there was one. Links to other sites are
not followed.
"""

import html.parser
import pathlib
import posixpath
import re
import sys
import urllib.parse

OTHER_SITE = re.compile(r"^(?:[a-z][a-z0-9+.-]*:|//)", re.IGNORECASE)
CSS_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")
# What a page loads by itself, by the attribute that names it.
LOADS = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"),
         ("link", "href")}
NOT_LOADED = {"canonical", "alternate", "next", "prev", "search", "index", "author", "license"}


class Page(html.parser.HTMLParser):
    """The anchors of a page and what it points to."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.anchors = set()
        self.targets = []  # (target, whether the page loads it)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        rel = set((attrs.get("rel") or "").split())
        for name in ("href", "src"):
            if attrs.get(name):
                loads = (tag, name) in LOADS and not rel & NOT_LOADED
                self.targets.append((attrs[name], loads))


def problem_of(site, name, target, loads):
    """What is wrong with a target of the page `name`, or None."""
    if OTHER_SITE.match(target):
        inline = target.startswith("data:")
        return f"loads {target} from another site" if loads and not inline else None
    if target.startswith("/"):
        return f"{target} is absolute"
    path, _, anchor = target.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    path = posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) if path else name
    if path not in site:
        return f"{target} leads to {path}, which does not exist"
    page = site[path]
    if anchor and page is not None and urllib.parse.unquote(anchor) not in page.anchors:
        return f"{target}: {path} has no such anchor"
    return None


def check(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    site = {path.relative_to(folder).as_posix(): None for path in files}
    for path in files:
        if path.suffix == ".html":
            name = path.relative_to(folder).as_posix()
            site[name] = Page(path.read_text(encoding="utf-8"))
    problems = []
    for name, page in site.items():
        if page is not None:
            found = (problem_of(site, name, *target) for target in page.targets)
            problems += [f"{name}: {problem}" for problem in found if problem]
        elif name.endswith(".css"):
            text = (folder / name).read_text(encoding="utf-8")
            urls = (first or second for first, second in CSS_URL.findall(text))
            found = (problem_of(site, name, url, True) for url in urls)
            problems += [f"{name}: {problem}" for problem in found if problem]
    return problems, sum(page is not None for page in site.values())


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1], "index.html").is_file():
        print("check.py: expected a folder with an index.html", file=sys.stderr)
        return 2
    problems, pages = check(pathlib.Path(sys.argv[1]))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{pages} pages, no dead link")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
