# SPDX-License-Identifier: Apache-2.0
"""Token streams per domain: made once from the text, read in order, resumable by position."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer

from sources import DOMAINS

BOS_ID, EOS_ID = 0, 1


def load_texts(work, domain, split):
    lines = (Path(work) / "text" / f"{domain}.{split}.jsonl").read_text().rstrip("\n").split("\n")
    return [json.loads(line)["text"] for line in lines]


def tokenize(work):
    """Writes tokens/<domain>.<split>.npy (uint16) where missing: documents in random order, each between BOS and EOS."""
    out = Path(work) / "tokens"
    out.mkdir(exist_ok=True)
    tokenizer = Tokenizer.from_file(str(Path(work) / "tokenizer.json"))
    for path in (out / f"{domain}.{split}.npy" for domain in DOMAINS for split in ("train", "heldout")):
        if not path.exists():
            texts = load_texts(work, *path.stem.split("."))
            texts = [texts[i] for i in np.random.default_rng(0).permutation(len(texts))]
            streams = [[*encoding.ids, EOS_ID] for encoding in tokenizer.encode_batch(texts)]
            np.save(path, np.concatenate([np.array(s, dtype=np.uint16) for s in streams]))
            print("tokens", path.stem, sum(map(len, streams)), flush=True)


class Streams:
    """Hands out sequences, each wholly from one domain. `position` is the whole state."""

    def __init__(self, work):
        self.tokens = [np.load(Path(work) / "tokens" / f"{domain}.train.npy", mmap_mode="r") for domain in DOMAINS]
        self.position = [0] * len(DOMAINS)

    def take(self, domain, length):
        """`length` tokens and two more (targets of the main and the prediction head); wraps around at the end."""
        tokens, at = self.tokens[domain], self.position[domain]
        if at + length + 2 > len(tokens):
            at = 0
        self.position[domain] = at + length
        return torch.from_numpy(tokens[at:at + length + 2].astype(np.int64))

    def batch(self, per_domain, length):
        """[per_domain * domains, length + 2]; sequence i is of domain i % domains."""
        return torch.stack([self.take(d, length) for _ in range(per_domain) for d in range(len(DOMAINS))])


if __name__ == "__main__":
    tokenize(sys.argv[1])
