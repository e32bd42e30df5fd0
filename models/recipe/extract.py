# SPDX-License-Identifier: Apache-2.0
"""Turns the files of a package into plain text. Every extractor maps bytes to a list of documents."""

import gettext
import gzip
import html
import io
import re
import zlib
from html.parser import HTMLParser

BLOCKS = {"p", "div", "li", "h1", "h2", "h3", "h4", "h5", "h6", "tr", "dt", "dd", "table", "ul", "ol", "pre", "br", "blockquote"}
SKIPPED = {"script", "style", "head", "nav", "footer", "noscript", "input"}


def tidy(text):
    """Trims lines and folds runs of empty lines."""
    text = "\n".join(line.rstrip() for line in text.replace("\r", "").split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


class _PageText(HTMLParser):
    """Collects the visible text; blocks end paragraphs, <pre> keeps its line breaks."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.parts, self.skip, self.pre = [], [], 0

    def handle_starttag(self, tag, attrs):
        if tag in SKIPPED and tag != "input":
            self.skip.append(tag)
        self.pre += tag == "pre"
        if tag in BLOCKS:
            self.parts.append("\n" if tag in ("li", "tr", "br", "dd") else "\n\n")

    def handle_endtag(self, tag):
        if self.skip and self.skip[-1] == tag:
            self.skip.pop()
        self.pre -= tag == "pre" and self.pre > 0
        if tag in BLOCKS and tag not in ("li", "tr", "td"):
            self.parts.append("\n")

    def handle_data(self, data):
        if not self.skip:
            self.parts.append(data if self.pre else re.sub(r"\s+", " ", data))


def html_text(page):
    parser = _PageText()
    parser.feed(page)
    text = "".join(parser.parts)
    return tidy(re.sub(r"\n[ \t]+(?=\n)", "\n", text.replace("\xa0", " ").replace("¶", "")))


def from_html(data):
    page = data.decode("utf-8", "replace")
    body = re.search(r"<body.*", page, re.S)
    return [html_text(body.group(0) if body else page)]


ROFF_CHARS = {"aq": "'", "dq": '"', "cq": "’", "oq": "‘", "lq": "“", "rq": "”", "em": "—", "en": "–", "bu": "•", "co": "©",
              "ha": "^", "ti": "~", "rs": "\\", "Fo": "«", "Fc": "»", "Bq": "„", "mu": "×", "->": "→", "mc": "µ", "ga": "`",
              "+-": "±", "bv": "|", "or": "|", "ss": "ß", ":a": "ä", ":o": "ö", ":u": "ü", "'e": "é"}


def roff_inline(text):
    """Removes fonts and sizes, resolves escapes."""
    text = re.sub(r"\\f(\(..|\[[^\]]*\]|.)|\\s[+-]?\d|\\m\[[^\]]*\]", "", text)
    text = re.sub(r"\\\[u([0-9A-F]{4,5})\]", lambda m: chr(int(m[1], 16)), text)
    text = re.sub(r"\\\((..)|\\\[(..)\]", lambda m: ROFF_CHARS.get(m[1] or m[2], ""), text)
    text = re.sub(r'\\".*', "", text)
    text = text.replace("\\-", "-").replace("\\e", "\\").replace("\\&", "").replace("\\ ", " ").replace("\\~", " ")
    return re.sub(r"\\([:%|^/,cp])", "", text)


def macro_words(rest):
    return [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|(\S+)', rest)]


def roff_macro(name, rest):
    """Text of one macro line, with the line breaks it implies; None ends nothing and adds nothing."""
    words = macro_words(rest)
    if name in ("SH", "SS"):
        return "\n\n" + " ".join(words) + "\n"
    if name in ("PP", "LP", "P", "sp", "HP"):
        return "\n\n"
    if name in ("TP", "TQ", "br"):
        return "\n"
    if name == "IP":
        return "\n" + (words[0] + " " if words else "")
    if name in ("B", "I", "SM", "SB"):
        return " ".join(words) + " "
    if name in ("BR", "RB", "IR", "RI", "BI", "IB"):
        return "".join(words) + " "
    return None


def from_man(data):
    """A small reader for man(7) pages: good enough to read, no typesetter needed."""
    page = gzip.decompress(data).decode("utf-8", "replace")
    if ".SH" not in page or "\n.Dd" in page:
        return []
    out, literal = [], False
    for line in page.split("\n"):
        macro = re.match(r"[.']\s*([A-Za-z]+)\s*(.*)", line)
        if macro:
            literal = macro[1] in ("nf", "EX") or literal and macro[1] not in ("fi", "EE")
            out.append(roff_macro(macro[1], roff_inline(macro[2])) or "")
        elif line[:1] not in ".'":
            out.append(roff_inline(line) + ("\n" if literal else " "))
    return [tidy(re.sub(r" +", " ", "".join(out)).replace("\n ", "\n"))]


def zlib_streams(data):
    """All zlib streams of a file of concatenated blocks, whatever lies between them."""
    at = 0
    while (at := data.find(b"\x78", at)) >= 0:
        try:
            inflater = zlib.decompressobj()
            text = inflater.decompress(data[at:])
            at = len(data) - len(inflater.unused_data)
            yield text
        except zlib.error:
            at += 1


def from_sword(data):
    """Books of a SWORD module: one document per compressed block."""
    texts = (block.decode("utf-8", "replace") for block in zlib_streams(data))
    plain = (re.sub(r"<note.*?</note>|<title.*?</title>", " ", text, flags=re.S) for text in texts)
    plain = (re.sub(r"<(p|/p|lb|l|div|br)\b[^>]*>", "\n", text) for text in plain)
    plain = (html.unescape(re.sub(r"<[^>]+>", " ", text)) for text in plain)
    return [tidy(re.sub(r" *\n *", "\n", re.sub(r"[ \t\x00-\x08]+", " ", text))) for text in plain]


def from_rdb(data):
    """Novels of an R data file: the character strings of each object, one per printed line."""
    documents = []
    for block in zlib_streams(data):
        lines, at = [], 0
        while (at := block.find(b"\x00\x09", at)) >= 0:
            size = int.from_bytes(block[at + 2:at + 6], "big", signed=True)
            if -1 <= size <= 200 and block[at - 2:at] in (b"\x00\x04", b"\x00\x00"):
                lines.append(block[at + 6:at + 6 + max(size, 0)].decode("utf-8", "replace"))
                at += 6 + max(size, 0)
            else:
                at += 1
        documents.append(tidy("\n".join(lines)))
    return documents


def from_gz(data):
    """Dictionary of entries: indentation goes, blank lines stay."""
    text = gzip.decompress(data).decode("utf-8", "replace")
    return [tidy(re.sub(r"\n[ \t]+", "\n", part)) for part in re.split(r"\n(?=\S)", text)]


def from_text(data):
    return [tidy(data.decode("utf-8", "replace"))]


def catalogue(data):
    """(original, translation) pairs of a compiled message catalogue."""
    entries = gettext.GNUTranslations(io.BytesIO(data))._catalog.items()
    keys = ((key[0] if isinstance(key, tuple) else key, value) for key, value in entries)
    return [(key.split("\x04")[-1], value) for key, value in keys if key and value]


def from_mo_long(data):
    """Only the long translations of a catalogue: they read as prose."""
    return [tidy(re.sub(r"<[^>]+>", "", value)) for _, value in catalogue(data) if len(value) > 160]


def help_paragraphs(data):
    """{paragraph id: text} of a page of the office suite's help."""
    page = data.decode("utf-8", "replace")
    found = re.findall(r'<(p|h\d) id="(\w+)"[^>]*>(.*?)</\1>', page, re.S)
    return {key: " ".join(html.unescape(re.sub(r"<[^>]+>", "", text)).split()) for _, key, text in found}


EXTRACTORS = {"html": from_html, "man": from_man, "sword": from_sword, "rdb": from_rdb, "gz": from_gz, "text": from_text, "mo_long": from_mo_long}
