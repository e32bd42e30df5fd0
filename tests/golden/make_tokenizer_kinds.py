#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a tokenizer of each kind in use, and what `tokenizers` and `tiktoken` do with it.

    python3 tests/golden/make_tokenizer_kinds.py    # needs Python 3.11, tokenizers 0.23, tiktoken

tokenizers/KIND/       a small vocabulary with the structure of the models' published files
tokenizers/kinds.json  "kinds":  for each kind a digest of what becomes of each text of cases.json
                       "decodes": rows of numbers, as ids modulo the number of tokens plus 20, and
                       for each kind a digest of their text
                       "steps": normalizers, pre-tokenizers and decoders put into KIND mixtral, with
                       a digest for 32 in turn of the texts below 1,000 bytes
                       "characters": what the library takes as digits, punctuation, ...

A digest is the start of the SHA-256 of the ids as little-endian int32, of the text that they are
decoded to without special tokens, and of that with them, with a byte 0 after each of the texts.
Texts and training data are those of make_tokenizers.py.
"""

import base64
import hashlib
import itertools
import json
import random
import struct
import unicodedata

import tiktoken
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import trainers

import make_tokenizers as base
from make_tokenizers import OUT, added, compact, split

DIGITS = 12  # of a digest, in hexadecimal

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MINIMAX = (  # with possessive quantifiers
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
KIMI = "|".join(
    [
        r"[\p{Han}]+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
DEEPSEEK_V2 = (  # the letters are fewer than in the published file
    r"[\r\n]",
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    r"[一-龥ࠀ-一가-퟿]+",
)


def byte_level_steps(*steps, use_regex=False):
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*steps, last]) if steps else last


def trained(tokenizer, size, first_tokens=()):
    base.train(tokenizer, size, first_tokens)
    return tokenizer


def byte_level(pre_tokenizer, size=520, special=(), normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trained(tokenizer, size)
    tokenizer.add_tokens([added(token, True) for token in special])
    return tokenizer


def with_start(tokenizer, start, byte_level_too):
    template = processors.TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start} $B",
        special_tokens=[(start, tokenizer.token_to_id(start))],
    )
    steps = [processors.ByteLevel(trim_offsets=False), template] if byte_level_too else [template]
    tokenizer.post_processor = processors.Sequence(steps) if byte_level_too else template
    return tokenizer


def sentence_piece(normalizer, decoder, start=None, merges_as_text=False, fuse_unk=True):
    """BPE of characters: trained with words that begin with '▁', used without a pre-tokenizer."""
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    names = ["<unk>", "<s>", "</s>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=names + byte_tokens, limit_alphabet=140, show_progress=False
    )
    tokenizer.train_from_iterator(list(base.training_texts()), trainer)
    value = json.loads(tokenizer.to_str())
    value["pre_tokenizer"] = None
    value["added_tokens"] = value["added_tokens"][: len(names)]
    if merges_as_text:
        value["model"]["merges"] = [" ".join(pair) for pair in value["model"]["merges"]]
    tokenizer = Tokenizer.from_str(json.dumps(value))
    tokenizer.normalizer, tokenizer.decoder = normalizer, decoder
    if start:
        with_start(tokenizer, start, False)
    result = json.loads(tokenizer.to_str())
    if merges_as_text:
        result["model"]["merges"] = value["model"]["merges"]
    return Tokenizer.from_str(json.dumps(result)), json.dumps(result, ensure_ascii=False)


def spaces_back(*more):
    return decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *more]
    )


def make_mixtral():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    return sentence_piece(normalizer, spaces_back(strip), "<s>", merges_as_text=True)


def make_ernie():
    return sentence_piece(normalizers.Replace(" ", "▁"), spaces_back(), fuse_unk=False)


def make_olmoe():
    tokenizer = byte_level(
        byte_level_steps(use_regex=True), special=["<|endoftext|>"], normalizer=normalizers.NFC()
    )
    tokenizer.add_tokens(
        [added(" " * n, False, normalized=True) for n in (8, 4, 2)]
        + [added("|||IP_ADDRESS|||", False, normalized=True)]
    )
    return tokenizer


def make_deepseek_v2():
    steps = [split(pattern) for pattern in DEEPSEEK_V2]
    digits = pre_tokenizers.Digits(individual_digits=True)
    start = "<｜begin▁of▁sentence｜>"
    tokenizer = byte_level(byte_level_steps(*steps, digits), special=[start, "<｜end▁of▁sentence｜>"])
    return with_start(tokenizer, start, False)


def make_json_kinds():
    llama4 = byte_level(
        byte_level_steps(split(O200K)), special=["<|begin_of_text|>", "<|eot|>", "<|header_start|>"]
    )
    lfm2 = byte_level(
        byte_level_steps(split(LLAMA3)), special=["<|startoftext|>", "<|im_start|>", "<|im_end|>"],
        ignore_merges=True,
    )
    granite = pre_tokenizers.Digits(individual_digits=True)
    made = {
        "gpt_oss": byte_level(
            byte_level_steps(split(O200K)),
            special=["<|startoftext|>", "<|endoftext|>", "<|return|>", "<|channel|>", "<|start|>"],
        ),
        "glm": byte_level(
            byte_level_steps(split(LLAMA3)), special=["<|endoftext|>", "[gMASK]", "<sop>", "<|user|>"]
        ),
        "qwen3_5": byte_level(
            byte_level_steps(split(QWEN35)), special=["<|endoftext|>", "<|im_start|>"],
            normalizer=normalizers.NFC(),
        ),
        "minimax": byte_level(byte_level_steps(split(MINIMAX)), special=["]~b]", "[e~["]),
        "granite": byte_level(byte_level_steps(granite, use_regex=True), special=["<|start_of_role|>"]),
        "llama4": with_start(llama4, "<|begin_of_text|>", True),
        "lfm2": with_start(lfm2, "<|startoftext|>", False),
        "olmoe": make_olmoe(),
        "deepseek_v2": make_deepseek_v2(),
    }
    kinds = {name: (tokenizer, tokenizer.to_str()) for name, tokenizer in made.items()}
    return {"mixtral": make_mixtral(), "ernie": make_ernie(), **kinds}


# ---- tiktoken ----


def ranks_of(pattern):
    """The tokens of a trained byte-level tokenizer, in the order of their ids, as bytes."""
    to_byte = {}
    free = itertools.count(0x100)
    for byte in range(256):
        shown = 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE
        to_byte[chr(byte) if shown else chr(next(free))] = byte
    tokenizer = byte_level(byte_level_steps(split(pattern)), size=700)
    by_id = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda item: item[1])
    return [bytes(to_byte[c] for c in token) for token, _ in by_id]


def ranks_text(tokens):
    return "".join(f"{base64.b64encode(t).decode()} {rank}\n" for rank, t in enumerate(tokens))


class Tiktoken:
    """The interface of tokenizers.Tokenizer that result() needs."""

    def __init__(self, tokens, pattern, special, hidden, prepare):
        ranks = {token: rank for rank, token in enumerate(tokens)}
        self.encoding = tiktoken.Encoding(
            "golden", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special
        )
        self.size = len(tokens) + len(special)
        self.hidden = {special[name] for name in hidden}  # without special tokens
        self.prepare = prepare  # from a text to the texts that are encoded one by one

    def ids(self, text):
        parts = self.prepare(text)
        return [i for part in parts for i in self.encoding.encode(part, allowed_special="all")]

    def text(self, ids, skip):
        shown = [i for i in ids if i < self.size and not (skip and i in self.hidden)]
        return self.encoding.decode_bytes(shown).decode(errors="replace")


def kimi_parts(text):
    """Parts of 400,000 characters, and these where more than 25,000 are all spaces or all none."""
    parts = []
    for start in range(0, len(text), 400_000):
        part, last, run = "", None, 0
        for character in text[start : start + 400_000]:
            run = run + 1 if character.isspace() == last else 1
            last = character.isspace()
            if run > 25_000:
                parts.append(part)
                part, run = "", 1
            part += character
        parts.append(part)
    return parts


def make_kimi():
    tokens = ranks_of(KIMI)
    first = len(tokens)
    names = {
        0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 3: ("<|im_user|>", True),
        11: ("<|tool_calls_section_begin|>", False), 22: ("<think>", False), 255: ("[PAD]", True),
    }
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    config = {
        "added_tokens_decoder": {
            str(first + i): {"content": name, **flags, "special": special}
            for i, (name, special) in names.items()
        },
        "additional_special_tokens": ["<|im_end|>", "<|im_user|>"],
        "bos_token": "[BOS]", "eos_token": "[EOS]", "pad_token": "[PAD]",
        "tokenizer_class": "TikTokenTokenizer",
    }
    special = {
        names[i][0] if i in names else f"<|reserved_token_{first + i}|>": first + i
        for i in range(256)
    }
    hidden = [name for name, is_special in names.values() if is_special]
    files = {"tiktoken.model": ranks_text(tokens), "tokenizer_config.json": json.dumps(config) + "\n"}
    return Tiktoken(tokens, KIMI, special, hidden, kimi_parts), files


def make_hunyuan():
    tokens = ranks_of(base.QWEN3_PATTERN)
    names = ["<|endoftext|>", "<|startoftext|>", "<|bos|>", "<|eos|>", "<|pad|>"]
    names += [f"<|extra_{i}|>" for i in range(205)]
    special = {name: len(tokens) + i for i, name in enumerate(names)}
    files = {
        "hy.tiktoken": ranks_text(tokens),
        "tokenizer_config.json": json.dumps({"tokenizer_class": "HYTokenizer"}) + "\n",
    }
    prepare = lambda text: [unicodedata.normalize("NFC", text)]  # noqa: E731
    return Tiktoken(tokens, base.QWEN3_PATTERN, special, names, prepare), files


class Json:
    """The same interface for a tokenizers.Tokenizer."""

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.size = tokenizer.get_vocab_size()

    def ids(self, text):
        return self.tokenizer.encode(text).ids

    def text(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


# ---- results ----


def update(digest, tokenizer, ids):
    digest.update(struct.pack(f"<{len(ids)}i", *ids))
    for skip in (True, False):
        digest.update(tokenizer.text(ids, skip).encode() + b"\0")


def digest_of(tokenizer, texts):
    digest = hashlib.sha256()
    for raw in texts:
        update(digest, tokenizer, tokenizer.ids(raw.decode(errors="replace")))
    return digest.hexdigest()[:DIGITS]


def decode_digest(tokenizer, numbers):
    digest = hashlib.sha256()
    for row in numbers:
        update(digest, tokenizer, [n % (tokenizer.size + 20) for n in row])
    return digest.hexdigest()[:DIGITS]


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def replace(kind, pattern, content):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def make_steps():
    """[name, {key of the file: value}, ...]: what is put into the mixtral file."""
    to_space = replace("String", "▁", " ")
    fallback, fuse = {"type": "ByteFallback"}, {"type": "Fuse"}
    meta = lambda scheme, cut: {  # noqa: E731
        "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": cut
    }
    split_by = lambda kind, pattern, behavior, invert: {  # noqa: E731
        "type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert
    }
    strip = lambda start: {  # noqa: E731
        "type": "Strip", "content": " ", "start": start, "stop": 0
    }
    behaviors = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    steps = []
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            both = {"pre_tokenizer": meta(scheme, cut), "decoder": meta(scheme, cut)}
            steps.append([f"metaspace_{scheme}_{cut}", {"normalizer": None, **both}])
    for behavior in behaviors:
        for invert in (False, True):
            step = split_by("Regex", "\\s|[aeiou]|\\p{Han}", behavior, invert)
            steps.append([f"split_{behavior}_{invert}", {"normalizer": None, "pre_tokenizer": step}])
        step = sequence("pretokenizers", split_by("String", "a", behavior, False), meta("first", True))
        steps.append([f"split_string_{behavior}", {"normalizer": None, "pre_tokenizer": step}])
        step = {"type": "Punctuation", "behavior": behavior}
        steps.append([f"punctuation_{behavior}", {"pre_tokenizer": step}])
    for name, step in {
        "digits": {"type": "Digits", "individual_digits": False},
        "digits_alone": {"type": "Digits", "individual_digits": True},
        "whitespace": {"type": "Whitespace"},
        "whitespace_split": {"type": "WhitespaceSplit"},
        "split_sets": split_by("Regex", "[\\p{L}&&[^\\p{Han}a-f]]+|[^\\P{N}5]|\\d", "Isolated", False),
        "whitespace_meta": sequence("pretokenizers", {"type": "WhitespaceSplit"}, meta("first", False)),
    }.items():
        steps.append([name, {"normalizer": None, "pre_tokenizer": step}])
    for name, step in {
        "nfd": {"type": "NFD"},
        "nfkc": {"type": "NFKC"},
        "nfkd": {"type": "NFKD"},
        "lowercase": {"type": "Lowercase"},
        "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
        "strip_left": {"type": "Strip", "strip_left": True, "strip_right": False},
        "strip_right": {"type": "Strip", "strip_left": False, "strip_right": True},
        "accents": sequence("normalizers", {"type": "NFD"}, {"type": "StripAccents"}),
        "replace": replace("Regex", "[^\\S\\n]+|[\\p{L}&&[a-c]]", "$1x"),
        "many": sequence(
            "normalizers", {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Prepend", "prepend": "▁"},
            replace("String", " ", "▁"), sequence("normalizers", replace("Regex", "▁{2,}", "▁")),
        ),
    }.items():
        steps.append([name, {"normalizer": step}])
    for name, step in {
        "strip_each": sequence("decoders", to_space, strip(2)),
        "strip_all": sequence("decoders", to_space, fallback, fuse, strip(3)),
        "fallback": fallback,
        "fuse": fuse,
        "late_replace": sequence("decoders", fallback, fuse, to_space),
        "regex": sequence("decoders", replace("Regex", "▁(?=a)|[aeiou]+", "_"), fallback),
        "meta_after_fuse": sequence("decoders", fallback, fuse, meta("first", True)),
    }.items():
        steps.append([name, {"decoder": step}])
    no_fallback = {"byte_fallback": False}
    steps.append(["unknown", {"model": no_fallback}])
    steps.append(["unknown_alone", {"model": {**no_fallback, "fuse_unk": False}}])
    steps.append(["ignore_merges", {"model": {"ignore_merges": True}, "pre_tokenizer": meta("always", True)}])
    return steps


def with_step(mixtral, step):
    value = json.loads(mixtral)
    for key, new in step.items():
        if key == "model":
            value["model"].update(new)
        else:
            value[key] = new
    return Tokenizer.from_str(json.dumps(value))


def code_points():
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for start in range(0, len(points), 4096):
        yield points[start : start + 4096]


def as_ranges(points):
    ranges = []
    for c in sorted(points):
        if ranges and ranges[-1] == c - 1:
            ranges[-1] = c
        else:
            ranges += [c, c]
    return ranges


def alone(step):
    """The code points that are a piece of their own between letters."""
    return {
        ord(piece)
        for points in code_points()
        for piece, _ in step.pre_tokenize_str("".join(chr(c) + "a" for c in points))
        if len(piece) == 1 and piece != "a"
    }


def characters():
    words = pre_tokenizers.Whitespace()
    accents, lower = normalizers.StripAccents(), normalizers.Lowercase()
    word, mark, cases = set(), set(), []
    for points in code_points():
        # A word character joins the letters around it.
        pieces = {piece for piece, _ in words.pre_tokenize_str(" ".join(f"a{chr(c)}" for c in points))}
        word |= {c for c in points if f"a{chr(c)}" in pieces}
        mark |= set(points) - {ord(c) for c in accents.normalize_str("".join(map(chr, points)))}
        for c in points:
            low = lower.normalize_str(chr(c))
            if low != chr(c):
                cases += [c, low]
    return {
        "numeric": as_ranges(alone(pre_tokenizers.Digits(individual_digits=True))),
        "punctuation": as_ranges(alone(pre_tokenizers.Punctuation("isolated"))),
        "word": as_ranges(word),
        "mark": as_ranges(mark),
        "han": as_ranges(han()),
        "lower": hashlib.sha256(json.dumps(cases, ensure_ascii=False).encode()).hexdigest()[:DIGITS],
    }


def han():
    found = pre_tokenizers.Split(Regex(r"\p{Han}"), "removed", invert=True)
    texts = ("".join(map(chr, points)) for points in code_points())
    return {ord(c) for text in texts for piece, _ in found.pre_tokenize_str(text) for c in piece}


def main():
    texts = base.all_texts()
    json_kinds = make_json_kinds()
    kinds = {}
    for name, (tokenizer, text) in json_kinds.items():
        value = json.dumps(json.loads(text), ensure_ascii=False)
        base.write_json(OUT / name / "tokenizer.json", value)
        kinds[name] = Json(tokenizer)
    for name, (tokenizer, files) in {"kimi": make_kimi(), "hunyuan": make_hunyuan()}.items():
        kinds[name] = tokenizer
        for file, text in files.items():
            (OUT / name).mkdir(exist_ok=True)
            (OUT / name / file).write_text(text, encoding="utf-8")
    rng = random.Random(11)
    numbers = [[rng.randrange(1 << 20) for _ in range(rng.randrange(1, 20))] for _ in range(60)]
    # Rows of byte tokens in SentencePiece's kind of vocabulary: an emoji, cut short, and between.
    numbers += [[243, 162, 155, 131], [243, 162, 155], [300, 243, 162, 155, 131, 300, 243, 400]]
    rows = [f'"{name}": {compact([digest_of(kind, [raw]) for raw in texts])}' for name, kind in kinds.items()]
    decoded = {name: decode_digest(kind, numbers) for name, kind in kinds.items()}
    short = [raw for raw in texts if len(raw) < 1000]
    steps = []
    for name, step in make_steps():
        kind = Json(with_step(json_kinds["mixtral"][1], step))
        parts = [digest_of(kind, short[i : i + 32]) for i in range(0, len(short), 32)]
        steps.append(compact({"name": name, "put": step, "decoded": decode_digest(kind, numbers), "texts": parts}))
    body = ",\n".join(
        [
            '"kinds": {\n' + ",\n".join(rows) + "\n}",
            f'"numbers": {compact(numbers)}',
            f'"decodes": {compact(decoded)}',
            '"steps": [\n' + ",\n".join(steps) + "\n]",
            f'"characters": {compact(characters())}',
        ]
    )
    base.write_json(OUT / "kinds.json", "{" + body + "}")


if __name__ == "__main__":
    main()
