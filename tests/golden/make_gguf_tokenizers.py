#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gguf/tokenizers/: golden tokenizers as GGUF files, and the tokens that llama.cpp makes.

    tests/golden/make_gguf_tokenizers.py

The tokenizers are those of tokenizers/, with the name that llama.cpp's converter gives to their way
of cutting texts (tokenizer.ggml.pre). tokens.json has for each of them a digest of the tokens of
every text of tokenizers/cases.json: the first six digits of the SHA-256 of the ids as int32. Needs
the packages gguf 0.19.0, numpy and llama-cpp-python 0.3.36.
"""
import base64
import ctypes
import hashlib
import json
import pathlib

import gguf
import llama_cpp
import numpy

GOLDEN = pathlib.Path(__file__).parent
NAMES = {"deepseek_v2": "deepseek-llm", "deepseek_v3": "deepseek-v3", "glm": "glm4",
         "gpt_oss": "gpt-4o", "granite": "refact", "lfm2": "lfm2", "llama4": "llama4",
         "olmoe": "olmo", "qwen3": "qwen2", "qwen3_5": "qwen35", "ernie": None, "mixtral": None}
# Further names, with the tokens of a tokenizer above.
MORE = {"default": "olmoe", "starcoder": "granite", "falcon": "olmoe", "deepseek-coder": "deepseek_v2",
        "tekken": "gpt_oss", "seed-coder": "qwen3", "exaone4": "olmoe", "megrez": "qwen3", "bailingmoe": "qwen3",
        "minicpm5": "glm", "viking": "olmoe", "kimi-k2": "gpt_oss", "laguna": "qwen3",
        "spark2_5": "deepseek_v3", "jais-2": "glm", "youtu": "gpt_oss", "llama-bpe": "lfm2",
        "minimax-m2": "gpt_oss", "dbrx": "glm", "bloom": "olmoe", "ufakzeka": "qwen3"}
KIND = gguf.TokenType
LONGEST = 3000


def text_of(row):
    if "base64" in row:
        return base64.b64decode(row["base64"])
    return row["text"].encode() if "text" in row else row["unit"].encode() * row["times"]


def write(path, tokenizer, pre):
    model = tokenizer["model"]
    added = {token["content"]: token for token in tokenizer["added_tokens"]}
    ids = dict(model["vocab"])
    ids.update({token["content"]: token["id"] for token in tokenizer["added_tokens"]})
    by_id = {number: token for token, number in ids.items()}
    size = max(by_id) + 1
    tokens, kinds = [], []
    for number in range(size):
        token = by_id.get(number)
        tokens.append(f"[PAD{number}]" if token is None else token)
        special = added.get(token)
        if token is None:
            kinds.append(KIND.UNUSED)
        elif special is not None:
            kinds.append(KIND.CONTROL if special["special"] else KIND.USER_DEFINED)
        elif pre is None and token.startswith("<0x") and len(token) == 6:
            kinds.append(KIND.BYTE)
        else:
            kinds.append(KIND.NORMAL)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    writer = gguf.GGUFWriter(path, "llama", use_temp_file=False)
    if pre is None:
        # The scores of SentencePiece's files: of merged pieces in the order of their merges.
        ranks = {}
        for rank, merge in enumerate(merges):
            ranks.setdefault("".join(merge.split(" ", 1)), rank)
        writer.add_tokenizer_model("llama")
        writer.add_token_scores([-float(ranks.get(token, 1000 + i)) for i, token in
                                 enumerate(tokens)])
        prepends = "Prepend" in json.dumps(tokenizer["normalizer"])
        writer.add_add_space_prefix(prepends)
        writer.add_unk_token_id(ids["<unk>"])
        kinds[ids["<unk>"]] = KIND.UNKNOWN
    else:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(pre)
        writer.add_token_merges(merges)
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    begins = [token for token in added if "bos" in token or "begin" in token or token == "<s>"
              or "startoftext" in token]
    if begins:
        writer.add_bos_token_id(ids[begins[0]])
    writer.add_add_bos_token(bool(begins))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def tokens_of(path, texts):
    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    vocab = llama_cpp.llama_model_get_vocab(model)
    digests = []
    for text in texts:
        try:
            text.decode()
        except UnicodeDecodeError:
            digests.append("-")  # llama.cpp aborts
            continue
        if len(text) > LONGEST:
            digests.append("-")  # the stack of std::regex overflows
            continue
        room = (ctypes.c_int32 * (len(text) + 16))()
        count = llama_cpp.llama_tokenize(vocab, text, len(text), room, len(room), True, True)
        assert count >= 0
        ids = numpy.array(room[:count], numpy.int32)
        digests.append(hashlib.sha256(ids.tobytes()).hexdigest()[:6])
    llama_cpp.llama_model_free(model)
    return digests


def main():
    @llama_cpp.llama_log_callback
    def log(level, text, user_data):
        pass

    llama_cpp.llama_log_set(log, ctypes.c_void_p())
    cases = json.loads((GOLDEN / "tokenizers" / "cases.json").read_text())
    texts = [text_of(row) for row in cases["texts"]]
    target = GOLDEN / "gguf" / "tokenizers"
    target.mkdir(parents=True, exist_ok=True)
    digests = {}
    for name, pre in list(NAMES.items()) + [(None, pre) for pre in MORE]:
        source = name or MORE[pre]
        tokenizer = json.loads((GOLDEN / "tokenizers" / source / "tokenizer.json").read_text())
        path = target / f"{name or 'pre_' + pre}.gguf"
        write(path, tokenizer, pre)
        digests[path.stem] = " ".join(tokens_of(path, texts))
        if name is None:
            path.unlink()  # the test makes it of the tokenizer's file and the name
    lines = [f'{json.dumps(name)}: {json.dumps(value)}' for name, value in digests.items()]
    sources = json.dumps({f"pre_{pre}": [NAMES[source], source] for pre, source in MORE.items()})
    (target / "tokens.json").write_text(
        '{"named": ' + sources + ',\n"tokens": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
