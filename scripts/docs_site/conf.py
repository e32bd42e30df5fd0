# SPDX-License-Identifier: Apache-2.0
"""Settings of Sphinx for the documentation site: GitHub's Markdown, its anchors, no network."""

import os
import pathlib
import re

from docutils import nodes

root = pathlib.Path(os.environ["WIDEEP_SOURCE"])

project = "wideep"
author = "the wideep authors"
copyright = author  # noqa: A001: Sphinx's name
release = re.search(r"project\(wideep VERSION ([\d.]+)",
                    (root / "CMakeLists.txt").read_text(encoding="utf-8")).group(1)
version = release

extensions = ["myst_parser", "sphinx_copybutton"]
exclude_patterns = ["_files"]
# What GitHub shows as text must not become MyST's syntax.
myst_disable_syntax = ["myst_line_comment", "myst_block_break", "myst_target", "myst_role"]
myst_enable_extensions = ["attrs_inline", "linkify", "strikethrough"]
myst_linkify_fuzzy_links = False
myst_heading_anchors = 6
smartquotes = False
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"wideep {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_use_index = False
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .go"
copybutton_prompt_text = "$ "
copybutton_only_copy_prompt_lines = True


def use_github_anchors(app, doctree):
    """Gives each section the anchor that it has on GitHub, so that links from outside hold, too."""
    for section in doctree.findall(nodes.section):
        slug = section.get("slug")
        if slug and slug not in doctree.ids:
            section["ids"].insert(0, slug)
            doctree.ids[slug] = section


def setup(app):
    # Before Sphinx collects the tables of contents.
    app.connect("doctree-read", use_github_anchors, priority=100)
