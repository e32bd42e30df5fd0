# SPDX-License-Identifier: Apache-2.0
"""llama.cpp over nodes, for compare_nodes.py; runs in its venv.

    llama_rpc.py serve ADDRESS:PORT
    llama_rpc.py measure FILE.gguf TOKENS STREAMS,... [ADDRESS:PORT...]

`measure` has a share of the layers itself, as large as that of each other node.
"""

import ctypes
import json
import pathlib
import random
import statistics
import sys
import time

import llama_cpp

LIBRARIES = pathlib.Path(llama_cpp.__file__).parent / "lib"
BASE = ctypes.CDLL(str(LIBRARIES / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
GGML = ctypes.CDLL(str(LIBRARIES / "libggml.so"), mode=ctypes.RTLD_GLOBAL)
RPC = ctypes.CDLL(str(LIBRARIES / "libggml-rpc.so"), mode=ctypes.RTLD_GLOBAL)
CPU_DEVICE = 0  # GGML_BACKEND_DEVICE_TYPE_CPU
Device = ctypes.c_void_p


def serve(endpoint):
    GGML.ggml_backend_dev_by_type.restype = Device
    devices = (Device * 1)(GGML.ggml_backend_dev_by_type(CPU_DEVICE))
    RPC.ggml_backend_rpc_start_server(endpoint.encode(), None, ctypes.c_size_t(1), ctypes.c_size_t(1), devices)


def remote_devices(endpoints):
    RPC.ggml_backend_rpc_add_server.restype = ctypes.c_void_p
    BASE.ggml_backend_reg_dev_get.restype = Device
    devices = []
    for endpoint in endpoints:
        registry = RPC.ggml_backend_rpc_add_server(endpoint.encode())
        if not registry:
            sys.exit(f"{endpoint}: llama.cpp cannot reach it")
        GGML.ggml_backend_register(ctypes.c_void_p(registry))
        devices.append(BASE.ggml_backend_reg_dev_get(ctypes.c_void_p(registry), ctypes.c_size_t(0)))
    return devices


class Model:
    def __init__(self, path, endpoints):
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.keep = [quiet]
        llama_cpp.llama_log_set(quiet, None)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        if endpoints:
            devices = (Device * (len(endpoints) + 1))(*remote_devices(endpoints), None)
            self.keep.append(devices)
            params.devices = ctypes.cast(devices, ctypes.c_void_p)
            layers = self.count_layers(path)
            params.n_gpu_layers = layers * len(endpoints) // (len(endpoints) + 1)
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            sys.exit("llama.cpp cannot load the model")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    @staticmethod
    def count_layers(path):
        from gguf import GGUFReader

        fields = GGUFReader(path).fields
        return next(int(field.contents()) for name, field in fields.items() if name.endswith(".block_count"))

    def decode(self, context, tokens):
        """tokens: (sequence, position, token). Seconds."""
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (sequence, position, token) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = True
        start = time.perf_counter()
        failed = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_synchronize(context)
        seconds = time.perf_counter() - start
        llama_cpp.llama_batch_free(batch)
        if failed:
            sys.exit(f"llama_decode failed: {failed}")
        return seconds

    def measure(self, streams, tokens):
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = 256 * streams, streams
        params.n_threads = params.n_threads_batch = 1
        context = llama_cpp.llama_init_from_model(self.model, params)
        rng = random.Random(streams)
        warm_up, prompt = 4, 16
        steps = []
        for at in range(prompt + warm_up + tokens):
            batch = [(s, at, rng.randrange(self.vocabulary)) for s in range(streams)]
            steps.append(self.decode(context, batch))
        llama_cpp.llama_free(context)
        measured = sorted(steps[prompt + warm_up:])
        return {"tokens_per_second": streams * len(measured) / sum(measured),
                "gap_ms": statistics.median(measured) * 1e3,
                "gap_p99_ms": measured[len(measured) * 99 // 100] * 1e3}


def main():
    if sys.argv[1] == "serve":
        return serve(sys.argv[2])
    _, _, path, tokens, streams, *endpoints = sys.argv
    model = Model(path, endpoints)
    print(json.dumps({int(count): model.measure(int(count), int(tokens)) for count in streams.split(",")}))


if __name__ == "__main__":
    main()
