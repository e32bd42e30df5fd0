#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what llama.cpp computes for each GGUF file of a directory beside it, MODEL.safetensors.

    scripts/llama_logits.py DIR

For three prompts p: p{p}.ids and p{p}.logits_f32 [tokens, vocabulary]. Needs llama-cpp-python and
numpy. Attention's cache is float32, without flash attention. Files that llama.cpp refuses, with its
own line on why, are named.
"""
import ctypes
import json
import os
import pathlib
import struct
import sys

import llama_cpp
import numpy

PROMPTS = [5, 17, 40]


def write(path, tensors):
    names = {"int32": "I32", "float32": "F32"}
    header, data = {}, b""
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def logits_of(path):
    parameters = llama_cpp.llama_model_default_params()
    parameters.use_mmap = True
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        return None
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    tensors = {}
    for prompt, count in enumerate(PROMPTS):
        context_parameters = llama_cpp.llama_context_default_params()
        context_parameters.n_ctx = context_parameters.n_batch = context_parameters.n_ubatch = 256
        context_parameters.type_k = context_parameters.type_v = 0  # float32
        context_parameters.flash_attn_type = 0
        context_parameters.n_threads = context_parameters.n_threads_batch = 1
        context = llama_cpp.llama_init_from_model(model, context_parameters)
        if not context:
            return None
        random = numpy.random.default_rng(prompt)
        ids = random.integers(3, size, count).astype(numpy.int32)
        batch = llama_cpp.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i] = int(token), i
            batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = 1, 0, 1
        if llama_cpp.llama_decode(context, batch) != 0:
            return None
        rows = [numpy.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (size,)).copy()
                for i in range(count)]
        tensors[f"p{prompt}.ids"] = ids
        tensors[f"p{prompt}.logits_f32"] = numpy.stack(rows).astype(numpy.float32)
        llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return tensors


def run(path):
    """In a process of its own: llama.cpp aborts where it does not expect something."""
    lines = []

    @llama_cpp.llama_log_callback
    def log(level, text, user_data):
        lines.append(text.decode(errors="replace").strip())

    llama_cpp.llama_log_set(log, ctypes.c_void_p())
    tensors = logits_of(path)
    if tensors is not None:
        write(path.with_suffix(".safetensors"), tensors)
        return 0
    why = [line for line in lines if "error" in line or "fail" in line]
    print(f"{path.name}: llama.cpp refuses it: {(why or lines[-1:] or ['?'])[0]}", flush=True)
    return 1


def main():
    os.environ["GGML_NO_BACKTRACE"] = "1"
    done = 0
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.gguf")):
        path.with_suffix(".safetensors").unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            os._exit(run(path))
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            print(f"{path.name}: llama.cpp aborts", flush=True)
        done += status == 0
    print(f"{done} models computed by llama.cpp")


if __name__ == "__main__":
    main()
