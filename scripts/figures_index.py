#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes index.html of the folder that scripts/figures.sh fills: a table of its figures, and below it
what commands without a page have printed.

    python3 figures_index.py <folder> <name TAB seed TAB what TAB seconds>...
"""

import html
import pathlib
import sys

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>Figures</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
pre {{ overflow-x: auto; font-size: .8rem; padding: .8rem; background: #8881; }}
td:nth-child(3) {{ white-space: nowrap; }}
td, th {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; }}
</style>
<h1>Figures</h1>
<p>Those of the texts that wideep grew from, made on this machine. What is alike and what differs:
docs/seeds.md.</p>
<table><tr><th>figure<th>of<th>files<th>seconds</tr>
{rows}
</table>
{texts}
"""


def row(folder, name, seed, what, seconds):
    files = [path.name for ending in ("html", "json", "txt")
             for path in [folder / f"{name}.{ending}"] if path.is_file() and path.stat().st_size]
    links = ", ".join(f'<a href="{file}">{file.rsplit(".", 1)[1]}</a>' for file in files)
    title = f'<a href="{files[0] if f"{name}.html" in files else "#" + name}">{html.escape(what)}</a>'
    return f"<tr><td>{title}<td>{html.escape(seed)}<td>{links}<td>{seconds}</tr>"


def text_of(folder, name, seed, what, _):
    """What a command without a page has printed."""
    path = folder / f"{name}.txt"
    if (folder / f"{name}.html").is_file() or not path.is_file():
        return ""
    text = html.escape(path.read_text(encoding="utf-8"))
    return f'<h2 id="{name}">{html.escape(what)}</h2><p>{html.escape(seed)}</p><pre>{text}</pre>'


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    figures = [entry.split("\t") for entry in sys.argv[2:]]
    rows = [row(folder, *figure) for figure in figures]
    texts = [text_of(folder, *figure) for figure in figures]
    path = folder / "index.html"
    path.write_text(PAGE.format(rows="\n".join(rows), texts="\n".join(texts)), encoding="utf-8")
    print(f"\n{len(rows)} figures: file://{path.resolve()}")


if __name__ == "__main__":
    main()
