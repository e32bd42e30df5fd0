#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that people who hear a page, or have no mouse, get all of it: every picture has a name,
what scrolls and what shows values under the pointer can be reached by keys, controls have labels.

    check_pages.py      of all pages: src/foundation/formats/page_parts, src/serve/server/*_page, tools/*_page
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ROOT / "src/foundation/formats/page_parts"
SERVED = ROOT / "src/serve/server"
PAGES = [SERVED / "dashboard_page", SERVED / "chat_page", *sorted((ROOT / "tools").glob("*_page"))]
# Set by scripts, where these scroll (section.js).
SCROLL_BY_SCRIPT = {"card": "letKeysScroll(card", "panels": "letKeysScroll(panels"}


def tags(text, name):
    """The tags of this name, each with the 300 characters before it. Of a tag that a script puts
    together only what stands before its first '>' counts."""
    for found in re.finditer(rf"<{name}\b[^>]*>", text):
        yield found[0], text[max(0, found.start() - 300) : found.start()]


def scrolling(css):
    """The last class of every rule that scrolls."""
    for rule in re.finditer(r"([^{}]+)\{([^{}]*)\}", css):
        if re.search(r"overflow(-[xy])?:\s*(auto|scroll)", rule[2]):
            for selector in rule[1].split(","):
                classes = re.findall(r"\.([\w-]+)", selector)
                if classes:
                    yield classes[-1]


def check_pictures(text):
    for tag, _ in tags(text, "(?:svg|canvas)"):
        if 'role="img"' not in tag or not re.search(r'aria-label="[^"]', tag):
            yield f'{tag}: expected role="img" and aria-label="…"'
    for tag, _ in tags(text, "img"):
        if "alt=" not in tag:
            yield f"{tag}: expected alt=…"


def check_controls(text):
    for tag, before in tags(text, "(?:input|select|textarea)"):
        identifier = re.search(r'id="([^"]*)"', tag)
        in_label = before.rfind("<label") > before.rfind("</label") or 'createElement("label")' in before
        has_label = identifier and f'<label for="{identifier[1]}"' in text
        if "aria-label=" not in tag and not in_label and not has_label:
            yield f"{tag}: expected a label around it, <label for=…> or aria-label=…"
    for tag, _ in tags(text, "button"):
        if re.search(re.escape(tag) + r"\s*</button>", text) and "aria-label=" not in tag:
            yield f"{tag}: expected a text or aria-label=…"


def check_scrolling(name, text, parts):
    if name in SCROLL_BY_SCRIPT:
        if SCROLL_BY_SCRIPT[name] not in parts:
            yield f".{name} scrolls: expected {SCROLL_BY_SCRIPT[name]}… in section.js"
        return
    uses = re.findall(rf'<[a-z]+\b[^>]*class="(?:[^"]* )?{name}(?: [^"]*)?"[^>]*>', text)
    for tag in uses:
        if 'tabindex="0"' not in tag or "aria-label" not in tag:
            yield f'{tag}: .{name} scrolls; expected tabindex="0" and aria-label="…"'


def check_pointers(text):
    if re.search(r'"(?:pointermove|mousemove)"', text) and "followKeys(" not in text and '"keydown"' not in text:
        yield "shows values under the pointer; expected followKeys(…) (tooltip.js) beside it"


def main():
    faults = []
    parts = "".join(path.read_text(encoding="utf-8") for path in sorted(PARTS.glob("*.js")))
    styles = "".join(path.read_text(encoding="utf-8") for path in sorted(PARTS.glob("*.css")))
    for folder in [PARTS, *PAGES]:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".js", ".html"))
        css = styles + "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.css")))
        for path in files:
            text = path.read_text(encoding="utf-8")
            found = [*check_pictures(text), *check_controls(text), *check_pointers(text)]
            for name in sorted(set(scrolling(css))):
                found += check_scrolling(name, text, parts)
            faults += [f"{path.relative_to(ROOT)}: {each}" for each in found]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
