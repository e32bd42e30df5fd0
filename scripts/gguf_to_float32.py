#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the GGUF files of a directory with all tensors decoded to float32.

    scripts/gguf_to_float32.py FROM TO

Needs the packages gguf and numpy. Left out are models whose answers llama.cpp computes otherwise
than their publishers (docs/models.md).
"""
import pathlib
import sys

import gguf
import numpy

OTHERWISE = {
    "deepseek_v2_groups": "groups are judged by their best two experts",
    "gpt_oss_plain": "rotation is rounded to whole dimensions",
}


def copy(source, target):
    reader = gguf.GGUFReader(source)
    architecture = reader.get_field("general.architecture").contents()
    writer = gguf.GGUFWriter(target, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind, element = field.types[0], field.types[-1]
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, field.contents(), kind, sub_type=element)
        else:
            writer.add_key_value(key, field.contents(), kind)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        writer.add_tensor(tensor.name, values.reshape([int(n) for n in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    source, target = map(pathlib.Path, sys.argv[1:3])
    for path in sorted(source.glob("*.gguf")):
        if path.stem in OTHERWISE:
            print(f"{path.name}: left out, llama.cpp computes it otherwise: {OTHERWISE[path.stem]}")
            continue
        copy(path, target / path.name)


if __name__ == "__main__":
    main()
