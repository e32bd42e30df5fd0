#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wideep and llama.cpp side by side: one MoE shape, random weights, runs in turn.

    bench/compare_llama_cpp.py --wideep build/wideep
    bench/compare_llama_cpp.py --wideep build/wideep --formats bf16 --rounds 5 --threads 2

Builds llama-cpp-python from its source on PyPI (minutes, once; nothing else needs a network), writes a
GGUF file of the shape for each format, then measures wideep, llama.cpp, wideep, llama.cpp, ...: a
machine whose speed changes from second to second shows both the same face. Printed are medians over
rounds, their ratio, and which share of the machine's limits each reaches, as `wideep bench model`
measures them; both engines' shares are of the same bound, that of wideep's bytes and operations.

llama.cpp is fed random tokens, other ones for every sequence, and is not made to sample; wideep
samples greedily.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import venv

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "wideep-bench"
PACKAGES = ["llama-cpp-python==0.3.36", "gguf", "numpy"]
# llama.cpp's name of a format, and wideep's format with as many bits.
FORMATS = {"bf16": "bf16", "q8_0": "int8", "q4_0": "int4"}


# ---- inside the venv: writing the model ----


class GgufModel:
    """Random weights of a Qwen3-MoE config.json as a GGUF file of llama.cpp's architecture qwen3moe."""

    def __init__(self, config, path, quantization):
        import gguf
        import numpy

        self.gguf, self.numpy, self.config = gguf, numpy, config
        self.type = gguf.GGMLQuantizationType[quantization.upper()]
        self.rng = numpy.random.default_rng(1)
        self.writer = gguf.GGUFWriter(path, "qwen3moe")
        self.made = {}  # by shape: making and quantising numbers takes longer than all else

    def write(self):
        self.add_sizes()
        self.add_tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()

    def add_sizes(self):
        config, writer = self.config, self.writer
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
        writer.add_vocab_size(config["vocab_size"])
        writer.add_tokenizer_model("no_vocab")

    def add_tensors(self):
        config = self.config
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        experts, width = config["num_experts"], config["moe_intermediate_size"]
        head_dim = config["head_dim"]
        q_width = config["num_attention_heads"] * head_dim
        kv_width = config["num_key_value_heads"] * head_dim
        self.matrix("token_embd", vocab, hidden)
        self.matrix("output", vocab, hidden)
        self.norm("output_norm", hidden)
        for layer in range(config["num_hidden_layers"]):
            name = f"blk.{layer}."
            self.norm(name + "attn_norm", hidden)
            self.norm(name + "ffn_norm", hidden)
            self.norm(name + "attn_q_norm", head_dim)
            self.norm(name + "attn_k_norm", head_dim)
            self.matrix(name + "attn_q", q_width, hidden)
            self.matrix(name + "attn_k", kv_width, hidden)
            self.matrix(name + "attn_v", kv_width, hidden)
            self.matrix(name + "attn_output", hidden, q_width)
            self.router(name + "ffn_gate_inp", experts, hidden)
            self.matrix(name + "ffn_gate_exps", experts, width, hidden, turn=layer)
            self.matrix(name + "ffn_up_exps", experts, width, hidden, turn=layer + experts // 2)
            self.matrix(name + "ffn_down_exps", experts, hidden, width, turn=layer)

    def normal(self, *shape):
        return self.rng.standard_normal(shape, dtype=self.numpy.float32) / shape[-1] ** 0.5

    def matrix(self, name, *shape, turn=0):
        if shape not in self.made:
            self.made[shape] = self.gguf.quants.quantize(self.normal(*shape), self.type)
        data = self.numpy.roll(self.made[shape], turn, axis=0)
        self.writer.add_tensor(name + ".weight", data, raw_dtype=self.type)

    def router(self, name, experts, hidden):
        self.writer.add_tensor(name + ".weight", 2 * self.normal(experts, hidden))

    def norm(self, name, size):
        self.writer.add_tensor(name + ".weight", self.numpy.ones(size, dtype=self.numpy.float32))


# ---- inside the venv: measuring llama.cpp ----


class Llama:
    """A model in llama.cpp, through its C interface."""

    def __init__(self, path, threads):
        import llama_cpp

        self.api, self.threads = llama_cpp, threads
        quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        self.keep = quiet  # as long as llama.cpp may call it
        llama_cpp.llama_log_set(quiet, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path}: llama.cpp cannot load it")

    def context(self, sequences, length):
        params = self.api.llama_context_default_params()
        params.n_ctx = sequences * ((length + 255) // 256 * 256)
        params.n_batch = params.n_ubatch = 512
        params.n_seq_max = sequences
        params.n_threads = params.n_threads_batch = self.threads
        context = self.api.llama_init_from_model(self.model, params)
        if not context:
            sys.exit(f"llama.cpp cannot make a context of {sequences} x {length} tokens")
        return context

    def decode(self, context, tokens):
        """tokens: (sequence, position, token, whether its logits are wanted), at most 512."""
        batch = self.api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, (sequence, position, token, wanted) in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = wanted
        start = time.perf_counter()
        failed = self.api.llama_decode(context, batch)
        self.api.llama_synchronize(context)
        seconds = time.perf_counter() - start
        self.api.llama_batch_free(batch)
        if failed:
            sys.exit(f"llama_decode failed: {failed}")
        return seconds


def prefill(llama, random_token, length):
    """Tokens per second of one prompt; the first of two runs warms up."""
    context = llama.context(1, length)
    for _ in range(2):
        llama.api.llama_memory_clear(llama.api.llama_get_memory(context), True)
        prompt = [(0, i, random_token(), i + 1 == length) for i in range(length)]
        seconds = sum(llama.decode(context, prompt[at:at + 512]) for at in range(0, length, 512))
    llama.api.llama_free(context)
    return length / seconds


def generate(llama, random_token, sequences, depth, steps):
    """Tokens per second of `sequences` at once, `depth` tokens in each before."""
    warm_up = 2
    context = llama.context(sequences, depth + warm_up + steps)
    prompts = [(s, i, random_token(), i + 1 == depth) for s in range(sequences) for i in range(depth)]
    for at in range(0, len(prompts), 512):
        llama.decode(context, prompts[at:at + 512])
    seconds = 0.0
    for step in range(warm_up + steps):
        took = llama.decode(context, [(s, depth + step, random_token(), True) for s in range(sequences)])
        seconds += took if step >= warm_up else 0.0
    llama.api.llama_free(context)
    return sequences * steps / seconds


def measure_llama(options):
    import random

    vocab = json.loads(pathlib.Path(options.config).read_text())["vocab_size"]
    rng = random.Random(options.seed)
    llama = Llama(options.gguf, options.threads)
    speeds = {}
    token = lambda: rng.randrange(vocab)
    if options.prompt > 0:
        speeds[f"prefill {options.prompt}"] = prefill(llama, token, options.prompt)
    for batch in options.batch:
        speeds[f"decode x{batch}"] = generate(llama, token, batch, options.depth, options.generate)
    print(json.dumps(speeds))


# ---- outside: both in turn ----


def prepare_venv(directory):
    """The Python of a venv that has llama.cpp."""
    python = directory / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import llama_cpp, gguf"],
                                          capture_output=True).returncode == 0:
        return python
    print(f"building llama.cpp in {directory} (takes minutes, only once)", file=sys.stderr)
    venv.create(directory, with_pip=True)
    environment = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python",
                    *PACKAGES], check=True, env=environment)
    return python


def prepare_gguf(python, options, quantization):
    path = options.cache / f"{pathlib.Path(options.config).stem}-{quantization}.gguf"
    if not path.exists():
        print(f"writing {path}", file=sys.stderr)
        part = path.with_suffix(".part")
        subprocess.run([python, __file__, "--role", "write", "--config", options.config, "--gguf", part,
                        "--formats", quantization], check=True)
        part.rename(path)
    return path


def test_arguments(options):
    return ["--config", options.config, "--threads", str(options.threads),
            "--prompt", str(options.prompt), "--generate", str(options.generate),
            "--depth", str(options.depth), "--batch", ",".join(map(str, options.batch))]


def run_wideep(options, dtype, seed):
    """The report's JSON; None if this wideep does not support the format."""
    result = subprocess.run([options.wideep, "bench", "model", "--random-weights", "--dtype", dtype,
                             "--repeat", "1", "--seed", str(seed), "--json", *test_arguments(options)],
                            capture_output=True, text=True)
    if result.returncode == 2 and "--dtype" in result.stderr:
        return None
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    return json.loads(result.stdout)


def run_llama(python, options, gguf, seed):
    result = subprocess.run([python, __file__, "--role", "measure", "--gguf", gguf, "--seed", str(seed),
                             *test_arguments(options)], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(result.stderr.strip())
    return json.loads(result.stdout)


def limits_line(limits):
    return (f"read {limits['read_gbps']:.1f} GB/s; f32 {limits['f32_gops']:.0f}, bf16 "
            f"{limits['bf16_gops']:.0f}, int8 {limits['int8_gops']:.0f} GOP/s; flag "
            f"{limits['flag_one_way_ns']:.0f} ns")


def compare(python, options, quantization, dtype):
    gguf = prepare_gguf(python, options, quantization)
    rounds = []
    for seed in range(1, options.rounds + 1):
        wideep = run_wideep(options, dtype, seed)
        rounds.append((wideep, run_llama(python, options, gguf, seed)))
    print_rounds(rounds, quantization, dtype)
    return [{"wideep": wideep, "llama.cpp": llama} for wideep, llama in rounds]


def print_rounds(rounds, quantization, dtype):
    print(f"\n{dtype} (llama.cpp: {quantization}), {len(rounds)} rounds")
    for wideep, _ in rounds:
        if wideep is not None:
            print("limits  " + limits_line(wideep["limits"]))
    print(f"{'test':<14}{'wideep':>10}{'llama.cpp':>11}  ratio   share of the limit: wideep, llama.cpp")
    for name in rounds[0][1]:
        llama = statistics.median(speeds[name] for _, speeds in rounds)
        if rounds[0][0] is None:
            print(f"{name:<14}{'-':>10}{llama:>11.1f}  this wideep does not support {dtype}")
            continue
        pairs = [(find_test(wideep, name), speeds[name]) for wideep, speeds in rounds]
        own = statistics.median(test["tokens_per_second"]["median"] for test, _ in pairs)
        ratio = statistics.median(test["tokens_per_second"]["median"] / other for test, other in pairs)
        share = statistics.median(test["share"]["median"] for test, _ in pairs)
        others = statistics.median(test["share"]["median"] * other / test["tokens_per_second"]["median"]
                                   for test, other in pairs)
        print(f"{name:<14}{own:>10.1f}{llama:>11.1f}  {ratio:5.2f}   {pairs[0][0]['bound']:<5}"
              f"{100 * share:>6.1f} %{100 * others:>7.1f} %")


def find_test(report, name):
    return next(test for test in report["tests"] if test["name"] == name)


def parse_arguments():
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep", help="the program; default: %(default)s")
    parser.add_argument("--config", default=str(HERE / "configs" / "qwen3-moe-1.3b.json"),
                        help="a Qwen3-MoE config.json")
    parser.add_argument("--formats", default=",".join(FORMATS), help="of llama.cpp; default: %(default)s")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32, help="steps of a decode test")
    parser.add_argument("--depth", type=int, default=16, help="tokens before a decode test")
    parser.add_argument("--batch", type=numbers, default=[1, 8, 32], help="A,B,C")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE, help="for llama.cpp and its models")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    # How the program calls itself inside the venv.
    parser.add_argument("--role", choices=["compare", "write", "measure"], default="compare",
                        help=argparse.SUPPRESS)
    parser.add_argument("--gguf", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = set(options.formats.split(",")) - set(FORMATS)
    if unknown:
        parser.error(f"--formats: expected some of {', '.join(FORMATS)}, found {', '.join(unknown)}")
    return options


def main():
    options = parse_arguments()
    if options.role == "write":
        return GgufModel(json.loads(pathlib.Path(options.config).read_text()), options.gguf,
                         options.formats).write()
    if options.role == "measure":
        return measure_llama(options)
    options.cache.mkdir(parents=True, exist_ok=True)
    python = prepare_venv(options.cache / "venv")
    results = {name: compare(python, options, name, FORMATS[name]) for name in options.formats.split(",")}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
