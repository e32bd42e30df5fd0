#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of prepare.py and check.py, which need neither Sphinx nor the network."""

import pathlib
import subprocess
import tempfile
import unittest

import check
import prepare


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Temporary(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class PrepareTest(Temporary):
    FILES = {
        "README.md": "# w\n[docs/a.md](docs/a.md#part) ![p](docs/images/p.png) [all](src/h/)\n",
        "docs/a.md": "# A\n[w](../README.md), `src/h/x.cc`, `h/x.cc`, `x.cc`, [`x`](../src/h/x.cc)\n"
                     "<a id=\"here\"></a>`[no](link.md)` [it\nis](decisions/README.md)\n"
                     "```\n[no](link.md) `src/h/x.cc`\n```\n[0001](decisions/0001-why.md)\n",
        "docs/decisions/README.md": "# D\n[0001](0001-why.md) [a](../a.md) [elsewhere](https://x/y)\n",
        "docs/decisions/0001-why.md": "# Why\n",
        "docs/images/p.png": "png",
        "src/h/x.cc": "int x;\n",
        "src/h/y.h": "int y;\n",
    }
    GROUPS = [("Start", [("docs/a.md", "The A")]), ("Decisions", [("docs/decisions/README.md", "All")])]

    def prepare(self, files, groups=None):
        source, output = self.folder / "source", self.folder / "output"
        write(source, files)
        subprocess.run(["git", "init", "--quiet", str(source)], check=True)
        site = prepare.Site(source, output)
        site.prepare(groups or self.GROUPS)
        return site.problems, output

    def test_links_lead_to_pages(self):
        problems, output = self.prepare(self.FILES)
        self.assertEqual(problems, [])
        index = (output / "index.md").read_text()
        self.assertIn("[The A](a.md#part) ![p](images/p.png) [all](code/files/src/h/index.rst)", index)
        self.assertIn(":caption: Start\n\nThe A <a>\n", index)
        self.assertEqual((output / "images/p.png").read_text(), "png")
        page = "code/files/src/h/x.cc.rst"
        self.assertEqual(
            (output / "a.md").read_text(),
            f"# A\n[w](index.md), [`src/h/x.cc`]({page}), [`h/x.cc`]({page}), `x.cc`, [`x`]({page})\n"
            "[]{#here}`[no](link.md)` [it\nis](decisions/index.md)\n"
            "```\n[no](link.md) `src/h/x.cc`\n```\n[0001](decisions/0001-why.md)\n")
        decisions = (output / "decisions/index.md").read_text()
        self.assertIn("[0001](0001-why.md) [a](../a.md) [elsewhere](https://x/y)", decisions)
        self.assertIn("0001 why <0001-why>", decisions)

    def test_files_and_folders_are_shown(self):
        _, output = self.prepare(self.FILES)
        folder = (output / "code/files/src/h/index.rst").read_text()
        self.assertIn(":doc:`x.cc </code/files/src/h/x.cc>`", folder)
        self.assertIn(":doc:`y.h </code/files/src/h/y.h>`", folder)
        shown = (output / "code/files/src/h/y.h.rst").read_text()
        self.assertIn(":nosearch:", shown)
        self.assertIn(".. literalinclude:: /_files/src/h/y.h\n   :language: cpp\n", shown)
        self.assertEqual((output / "_files/src/h/y.h").read_text(), "int y;\n")

    def test_a_dead_link_is_a_problem(self):
        problems, _ = self.prepare({**self.FILES, "docs/a.md": "[x](none.md) `none/x.cc`\n"})
        self.assertEqual(problems, ["docs/a.md: links to none.md, which does not exist"])

    def test_a_page_in_no_group_is_a_problem(self):
        problems, _ = self.prepare({**self.FILES, "docs/b.md": "# B\n"})
        self.assertEqual(problems,
                         ["docs/b.md: in no group of scripts/docs_site/navigation.txt"])

    def test_the_navigation_names_every_page_of_this_repository(self):
        scripts = pathlib.Path(prepare.__file__).parent
        site = prepare.Site(scripts.parent.parent, self.folder / "output")
        site.prepare(prepare.read_navigation(scripts / "navigation.txt"))
        self.assertEqual(site.problems, [])


class CheckTest(Temporary):
    def check(self, files):
        write(self.folder, files)
        return check.check(self.folder)

    def test_a_sound_site(self):
        problems, pages = self.check({
            "index.html": '<a href="a/b.html#x">b</a><a href="#y"></a><p id="y"><img src="p.png">'
                          '<a href="https://elsewhere/">e</a><link rel="stylesheet" href="s.css?v=1">',
            "a/b.html": '<a id="x" href="../index.html"></a><img src="data:image/png;base64,AA">',
            "p.png": "", "s.css": "p { background: url(p.png) }"})
        self.assertEqual(problems, [])
        self.assertEqual(pages, 2)

    def test_each_fault_is_named(self):
        problems, _ = self.check({
            "index.html": '<a href="none.html"></a><a href="a.html#none"></a><a href="/a.html"></a>'
                          '<script src="https://cdn/x.js"></script>'
                          '<link rel="stylesheet" href="//fonts/x.css">',
            "a.html": "<p id='x'>", "s.css": "@import 'https://cdn/f.css'; p { src: url(f.woff) }"})
        self.assertEqual(problems, [
            "index.html: none.html leads to none.html, which does not exist",
            "index.html: a.html#none: a.html has no such anchor",
            "index.html: /a.html is absolute",
            "index.html: loads https://cdn/x.js from another site",
            "index.html: loads //fonts/x.css from another site",
            "s.css: loads https://cdn/f.css from another site",
            "s.css: f.woff leads to f.woff, which does not exist"])


if __name__ == "__main__":
    unittest.main()
