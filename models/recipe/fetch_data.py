# SPDX-License-Identifier: Apache-2.0
"""Downloads the packages of sources.py and writes text/<domain>.<train|heldout>.jsonl. Needs apt (Debian 12).

One line per document: {"source": package, "text": ...}. A document is held out when a hash of its origin says so; the
origin leaves out the language, so a held-out page is held out in all its translations.
"""

import argparse
import hashlib
import io
import json
import re
import subprocess
import tarfile
from pathlib import Path

import extract
import sources
import word_problems

MAX_SOURCE_BYTES = 5_000_000   # no package may dominate its domain
MIN_DOCUMENT, MAX_DOCUMENT = 200, 40_000   # characters; longer documents are cut
PROBLEMS = 60_000
ARITHMETIC = {"word_problems", "gsm8k"}
LANGUAGES = {"de": "German", "fr": "French"}


def key_of(origin):
    return int(hashlib.sha256(origin.encode()).hexdigest()[:8], 16)


def held_out(origin):
    return key_of(origin) % 100 == 0


# -- download ----------------------------------------------------------------------------------------------------------

def binary_packages():
    rows = {row[0] for rows in sources.BINARY.values() for row in rows}
    return sorted(rows | {name for name, _ in sources.CATALOGUES} | set(sources.ALIGNED_HELP.values()))


def download(raw):
    """Fetches what is missing with the ordinary package client, source packages through a private list of sources."""
    missing = [name for name in binary_packages() if not list(raw.glob(f"{name}_*.deb"))]
    if missing:
        subprocess.run(["apt-get", "download", *missing], cwd=raw, check=True)
    src = raw / "src"
    wanted = [name for rows in sources.SOURCE.values() for name, _ in rows if not list(src.glob(f"{name}_*.orig.tar.*"))]
    if wanted:
        download_sources(src, wanted)


def download_sources(src, names):
    """Switches the machine's Debian entries to `deb-src`, in a private copy."""
    (src / "parts").mkdir(parents=True, exist_ok=True)
    (src / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    for entry in Path("/etc/apt/sources.list.d").glob("debian*.sources"):
        (src / "parts" / entry.name).write_text(re.sub(r"(?m)^Types:.*", "Types: deb-src", entry.read_text()))
    options = ["-o", "Dir::Etc::sourcelist=/dev/null", "-o", f"Dir::Etc::sourceparts={src / 'parts'}",
               "-o", f"Dir::State::lists={src / 'lists'}"]
    subprocess.run(["apt-get", *options, "update"], check=True)
    subprocess.run(["apt-get", *options, "source", "--download-only", *names], cwd=src, check=True)


# -- read --------------------------------------------------------------------------------------------------------------

def members(archive, pattern):
    """(path, bytes) of an archive's regular files that match, in name order."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        chosen = sorted((m for m in tar if m.isfile() and re.search(pattern, m.name)), key=lambda m: m.name)
        for member in chosen:
            yield member.name, tar.extractfile(member).read()


def package_members(raw, package, pattern):
    deb = sorted(raw.glob(f"{package}_*.deb"))[-1]
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", deb], check=True, capture_output=True).stdout
    yield from members(archive, pattern)


def neutral_origin(path):
    """Path without language, so that translations share their fate."""
    path = re.sub(r"/(en-US|de-DE|fr-FR|en|de|fr)/", "/*/", path)
    return re.sub(r"\.(en|de|fr)\.html$", ".html", re.sub(r"-(en-us|de|fr)(-dev)?/", "/", path))


def pieces(text):
    """Cuts a long document at line ends into pieces of at most MAX_DOCUMENT characters."""
    while len(text) > MAX_DOCUMENT:
        cut = text.rfind("\n", MAX_DOCUMENT // 2, MAX_DOCUMENT)
        cut = MAX_DOCUMENT if cut < 0 else cut
        yield text[:cut]
        text = text[cut:].lstrip("\n")
    yield text


def binary_documents(raw, rows):
    for package, pattern, extractor, _ in rows:
        for path, data in package_members(raw, package, pattern):
            for number, text in enumerate(extract.EXTRACTORS[extractor](data)):
                for part, piece in enumerate(pieces(text)):
                    yield package, f"{neutral_origin(path)}#{number}.{part}", piece


def source_documents(raw, rows):
    for package, _ in rows:
        for tarball in sorted((raw / "src").glob(f"{package}_*.orig.tar.*")):
            if tarball.suffix == ".asc":
                continue
            for path, data in members(tarball.read_bytes(), r"\.[ch]$"):
                for part, piece in enumerate(pieces(extract.tidy(data.decode("utf-8", "replace")))):
                    yield package, f"{path}#{part}", piece


# -- sentence pairs ----------------------------------------------------------------------------------------------------

def clean_message(text):
    """A message without mnemonics, or None where it is not a plain sentence."""
    text = " ".join(re.sub(r"[&_~](?=\w)", "", text).split())
    plain = 30 <= len(text) <= 300 and text.count(" ") >= 4 and not re.search(r"[<>%{}$\\|@]|\w_\w|https?:", text)
    return text if plain else None


def catalogue_pairs(raw, language):
    for package, _ in sources.CATALOGUES:
        for _, data in package_members(raw, package, rf"/{language}/(LC_MESSAGES/)?[^/]*\.mo$"):
            for english, other in extract.catalogue(data):
                yield english, english, other


def help_pairs(raw, language):
    """Paragraphs of the office suite's help with equal page and id."""
    english = {neutral_origin(path): extract.help_paragraphs(data)
               for path, data in package_members(raw, sources.ALIGNED_HELP["en"], r"/text/.*\.html$")}
    for path, data in package_members(raw, sources.ALIGNED_HELP[language], r"/text/.*\.html$"):
        origin = neutral_origin(path)
        for key, other in extract.help_paragraphs(data).items():
            if key in english.get(origin, {}):
                yield origin + "#0.0", english[origin][key], other


def sentence_pairs(raw, language):
    """(held out, English, other) without repetition."""
    seen = set()
    for pairs in (help_pairs(raw, language), catalogue_pairs(raw, language)):
        for origin, english, other in pairs:
            english, other = clean_message(english), clean_message(other)
            if english and other and english != other and english not in seen and 0.5 < len(other) / len(english) < 2.2:
                seen.add(english)
                yield held_out(origin), english, other


def pair_documents(raw, language, per_document=6):
    """Few-shot style documents; half of them translate into English."""
    name = LANGUAGES[language]
    for chosen in (False, True):
        pairs = sorted((key_of(e), e, o) for held, e, o in sentence_pairs(raw, language) if held == chosen)
        for first in range(0, len(pairs), per_document):
            group = pairs[first:first + per_document]
            forward = first // per_document % 2 == 0
            lines = [f"English: {e}\n{name}: {o}" if forward else f"{name}: {o}\nEnglish: {e}" for _, e, o in group]
            yield chosen, "pairs-" + language, "\n\n".join(lines)


# -- write -------------------------------------------------------------------------------------------------------------

def math_documents(gsm8k):
    for text in word_problems.documents(PROBLEMS):
        yield held_out(text), "word_problems", text
    if not gsm8k:
        return
    lines = [json.loads(line) for line in Path(gsm8k).read_text().rstrip("\n").split("\n")]
    shown = [f"Question: {row['question']}\nAnswer: " + re.sub(r"<<.*?>>", "", row["answer"]) for row in lines]
    for first in range(0, len(shown), 4):
        text = "\n\n".join(shown[first:first + 4])
        yield held_out(text), "gsm8k", text


def domain_documents(domain, raw, gsm8k):
    """(held out, source, text) of a domain."""
    if domain == "math":
        yield from math_documents(gsm8k)
    elif domain == "translate":
        for language in LANGUAGES:
            yield from pair_documents(raw, language)
    else:
        rows = sources.BINARY.get(domain)
        found = binary_documents(raw, rows) if rows else source_documents(raw, sources.SOURCE[domain])
        for source, origin, text in found:
            yield held_out(origin), source, text


def without_addresses(text):
    """No one's e-mail address belongs in a model; nor does the frame around every page of the office suite's help."""
    text = re.sub(r"[<(]?[\w.+-]+@[\w-]+\.[\w.-]+[>)]?", "", text)
    return re.sub(r"^LibreOffice [\d.]+ [^\n]*\n+(\s?[^\n]{1,24}\n+){1,3}?[^\n]*🔎[^\n]*\n+", "", text)


def is_table(text):
    """Mostly numbers, such as test vectors and lookup tables in source code."""
    return len(re.findall(r"0x[0-9a-fA-F]+|\d+", text)) > 0.6 * len(re.findall(r"[A-Za-z_]{3,}", text))


def capped(documents):
    """Drops tables, short and repeated documents; of a large source keeps those with the smallest hashes."""
    by_source, seen = {}, set()
    for held, source, text in documents:
        text = without_addresses(text)
        if len(text) >= MIN_DOCUMENT and text not in seen and (source in ARITHMETIC or not is_table(text)):
            seen.add(text)
            by_source.setdefault(source, []).append((key_of(text), held, text))
    for source, rows in by_source.items():
        size = 0
        for _, held, text in sorted(rows):
            size += len(text.encode())
            if size <= MAX_SOURCE_BYTES or source == "word_problems" or source.startswith("pairs"):
                yield held, source, text


def write_domain(domain, raw, out, gsm8k):
    files = {held: (out / f"{domain}.{'heldout' if held else 'train'}.jsonl").open("w") for held in (False, True)}
    sizes = {}
    for held, source, text in capped(domain_documents(domain, raw, gsm8k)):
        files[held].write(json.dumps({"source": source, "text": text}, ensure_ascii=False) + "\n")
        sizes[(source, held)] = sizes.get((source, held), 0) + len(text.encode())
    for file in files.values():
        file.close()
    print(domain, {f"{s}{'*' if h else ''}": f"{n / 1e6:.2f} MB" for (s, h), n in sorted(sizes.items())}, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder for downloads and text")
    parser.add_argument("--gsm8k", help="gsm8k_train.jsonl (MIT), optional")
    parser.add_argument("--domains", nargs="*", default=sources.DOMAINS)
    args = parser.parse_args()
    raw, out = (args.work / "raw").resolve(), args.work / "text"
    raw.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    download(raw)
    for domain in args.domains:
        write_domain(domain, raw, out, args.gsm8k)


if __name__ == "__main__":
    main()
