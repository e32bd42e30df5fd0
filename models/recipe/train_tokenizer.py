# SPDX-License-Identifier: Apache-2.0
"""Trains the byte-level BPE tokenizer, with the structure of DeepSeek-V3's tokenizer.json, on equal shares of every domain."""

import argparse
import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from sources import DOMAINS

VOCAB_SIZE = 8192
BYTES_PER_DOMAIN = 6_000_000
BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SPECIAL = [BOS, EOS, PAD, "<｜User｜>", "<｜Assistant｜>"]   # ids 0 to 4

DIGITS = r"\p{N}{1,3}"
CJK = r"[一-龥぀-ゟ゠-ヿ]+"
WORDS = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
         r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+").replace(r"\"", '"')


def empty_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([])
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in (DIGITS, CJK, WORDS)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def texts(text_dir):
    """The first BYTES_PER_DOMAIN bytes of every domain's training text."""
    for domain in DOMAINS:
        size = 0
        for line in (text_dir / f"{domain}.train.jsonl").open():
            text = json.loads(line)["text"]
            size += len(text.encode())
            yield text
            if size > BYTES_PER_DOMAIN:
                break


def train(text_dir):
    tokenizer = empty_tokenizer()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB_SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
                                  special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL])
    tokenizer.train_from_iterator(texts(text_dir), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS}:1 $B:1", special_tokens=[(BOS, 0)])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    tokenizer = train(args.work / "text")
    assert [tokenizer.token_to_id(text) for text in SPECIAL] == list(range(len(SPECIAL)))
    tokenizer.save(str(args.work / "tokenizer.json"))
    print("vocabulary", tokenizer.get_vocab_size())


if __name__ == "__main__":
    main()
