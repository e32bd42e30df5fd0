#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `tokenizers` makes of added tokens with `normalized`, which are found, and decoded, as the
normalizer writes them.

    python3 tests/golden/make_normalized_tokens.py    # needs Python 3.11, tokenizers 0.23

tokenizers/normalized_tokens.json: for each kind (a folder of tokenizers/), normalizer and content
of an added token the ids of texts, and what they are decoded to with and without special tokens.
"""

import itertools
import json
import pathlib

from tokenizers import Tokenizer

OUT = pathlib.Path(__file__).resolve().parent / "tokenizers"
NORMALIZERS = [
    {"type": "Lowercase"},
    {"type": "Prepend", "prepend": "\u2581"},
    {"type": "Replace", "pattern": {"String": "o"}, "content": "0"},
    {"type": "Strip", "strip_left": True, "strip_right": True},
    {"type": "NFKC"},
    {"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
]
CONTENTS = ["<Tool>", "<\ufb01n>", " <too> ", "<x y>"]


def rows():
    for kind in ("mixtral", "qwen3"):
        with open(OUT / kind / "tokenizer.json", encoding="utf-8") as file:
            text = file.read()
        last = max(Tokenizer.from_str(text).get_vocab().values())
        for normalizer, content, special in itertools.product(NORMALIZERS, CONTENTS, (True, False)):
            root = json.loads(text)
            root["normalizer"] = normalizer
            root["added_tokens"].append(
                {"id": last + 1, "content": content, "single_word": False, "lstrip": False,
                 "rstrip": False, "normalized": True, "special": special})
            tokenizer = Tokenizer.from_str(json.dumps(root))
            texts = [f"a{content}b {content}", content]
            encoded = [tokenizer.encode(each, add_special_tokens=False).ids for each in texts]
            encoded.append([last + 1, 70, last + 1, last + 1, 71])
            yield {"kind": kind, "normalizer": normalizer, "content": content, "special": special,
                   "id": last + 1, "texts": texts, "ids": encoded,
                   "decoded": [[tokenizer.decode(ids, skip_special_tokens=skip)
                                for skip in (True, False)] for ids in encoded]}


with open(OUT / "normalized_tokens.json", "w", encoding="utf-8") as out:
    out.write("[\n" + ",\n".join(json.dumps(row) for row in rows()) + "\n]\n")
