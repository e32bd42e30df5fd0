#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes index.html of the folder that scripts/figures.sh fills: its figures, the commands that made
each, and where its page and its numbers are. A figure whose command draws no page gets one: what the
command has printed, or its JSON as a table.

    python3 figures_index.py <folder> <name TAB seed TAB what TAB seconds>...
"""

import html
import json
import pathlib
import sys

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
table {{ border-collapse: collapse; width: 100%; }}
pre {{ overflow-x: auto; font-size: .8rem; padding: .8rem; background: #8881; }}
details pre {{ white-space: pre-wrap; }}
summary {{ cursor: pointer; opacity: .7; font-size: .85rem; }}
td, th {{ text-align: left; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #8884; vertical-align: top; }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; }}
.scroll {{ overflow-x: auto; font-size: .85rem; }}
</style>
<h1>{title}</h1>
{body}
"""

INDEX = """<p>Those of the texts that wideep grew from, made on this machine. What is alike and what differs:
docs/seeds.md.</p>
<table><tr><th>figure<th>of<th>files<th class="number">seconds</tr>
{rows}
</table>
"""


def commands_of(folder, name):
    """The commands that have made a figure, as figures.sh has noted them."""
    path = folder / "runs" / f"{name}.commands"
    if not path.is_file():
        return ""
    text = html.escape(path.read_text(encoding="utf-8"))
    return f"<details><summary>commands</summary><pre>{text}</pre></details>"


def row(folder, name, seed, what, seconds):
    """A figure in the index."""
    links = ", ".join(f'<a href="{name}.{ending}">{ending}</a>' for ending in ("html", "json", "txt")
                      if (folder / f"{name}.{ending}").is_file())
    title = f'<a href="{name}.html">{html.escape(what)}</a>'
    return (f"<tr><td>{title}{commands_of(folder, name)}<td>{html.escape(seed)}<td>{links}"
            f'<td class="number">{seconds}</tr>')


def cell(value):
    """A value of JSON in a table. Of a measured figure: its median, lowest and highest."""
    if isinstance(value, dict) and {"median", "low", "high"} <= value.keys():
        return f"{value['median']:.4g} ({value['low']:.4g} to {value['high']:.4g})"
    if isinstance(value, float):
        return f"{value:.4g}"
    return html.escape(str(value))


def table_of(data):
    """The rows of a report, the list of objects in it, as a table."""
    lists = [data] if isinstance(data, list) else [each for each in data.values() if isinstance(each, list)]
    rows = next((each for each in lists if each and all(isinstance(entry, dict) for entry in each)), [])
    columns = list(dict.fromkeys(key for entry in rows for key in entry))
    if not columns:
        return f"<pre>{html.escape(json.dumps(data, indent=2))}</pre>"
    head = "".join(f"<th>{html.escape(column.replace('_', ' ').replace(' us', ', µs'))}" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell(entry.get(column, ''))}" for column in columns) + "</tr>"
                   for entry in rows)
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def add_page(folder, name, seed, what, _):
    """A page for a command that draws none."""
    page, text, numbers = [folder / f"{name}.{ending}" for ending in ("html", "txt", "json")]
    if page.is_file():
        return
    if text.is_file() and text.stat().st_size:
        shown = f"<pre>{html.escape(text.read_text(encoding='utf-8'))}</pre>"
    else:
        shown = table_of(json.loads(numbers.read_text(encoding="utf-8")))
    link = f'; <a href="{name}.json">numbers</a>' if numbers.is_file() else ""
    body = f"<p>{html.escape(seed)}{link}</p>\n{commands_of(folder, name)}\n{shown}"
    page.write_text(PAGE.format(title=html.escape(what), body=body), encoding="utf-8")


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    figures = [entry.split("\t") for entry in sys.argv[2:]]
    for figure in figures:
        add_page(folder, *figure)
    body = INDEX.format(rows="\n".join(row(folder, *figure) for figure in figures))
    if runs := commands_of(folder, "runs"):
        body += f"<h2>Runs that several draw</h2>\n{runs}"
    path = folder / "index.html"
    path.write_text(PAGE.format(title="Figures", body=body), encoding="utf-8")
    print(f"\n{len(figures)} figures: file://{path.resolve()}")


if __name__ == "__main__":
    main()
