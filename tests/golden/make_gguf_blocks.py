#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes gguf/blocks.gguf: blocks of random bits of every type, and what they decode to.

    tests/golden/make_gguf_blocks.py

For each type T a tensor "T" of that type, and "T.values" in F32: what gguf.quants.dequantize makes
of it (package gguf 0.19.0, which the committed file was made with). Scales are finite; all else is
any bits.
"""
import pathlib

import gguf
import numpy

TYPES = ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K",
         "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"]
ROWS, COLUMNS = 3, 256

# Where a block has float16 numbers.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82],
          "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0],
          "IQ4_XS": [0], "F16": [0], "BF16": []}


def random_blocks(random, name):
    kind = gguf.GGMLQuantizationType[name]
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (ROWS * COLUMNS // elements, size), numpy.uint8)
    for at in HALVES.get(name, []):
        high = blocks[:, at + 1]
        # Exponent 31 is infinity or NaN.
        high[(high & 0x7c) == 0x7c] &= 0x8f
    if name == "BF16":
        blocks[:, 1] &= 0xbf
    if name == "MXFP4":
        blocks[0, 0], blocks[1, 0], blocks[2, 0] = 0, 1, 252
        blocks[3:, 0] = blocks[3:, 0] % 252
    return blocks.reshape(ROWS, -1), kind


def main():
    random = numpy.random.default_rng(1)
    path = pathlib.Path(__file__).parent / "gguf" / "blocks.gguf"
    writer = gguf.GGUFWriter(path, "blocks")
    for name in TYPES:
        blocks, kind = random_blocks(random, name)
        values = gguf.quants.dequantize(blocks, kind).astype(numpy.float32)
        assert values.shape == (ROWS, COLUMNS) and numpy.isfinite(values).all(), name
        writer.add_tensor(name, blocks, raw_dtype=kind)
        writer.add_tensor(name + ".values", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
