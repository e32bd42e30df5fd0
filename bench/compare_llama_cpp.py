#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""wideep and llama.cpp side by side: shapes of MoE models, random weights, runs in turn.

    bench/compare_llama_cpp.py --wideep build/wideep
    bench/compare_llama_cpp.py --wideep build/wideep --formats bf16 --rounds 5 --threads 2
    bench/compare_llama_cpp.py --wideep build/wideep --config bench/configs/{gpt-oss,mixtral}-*.json
    bench/compare_llama_cpp.py --wideep build/wideep --file Qwen3-30B-A3B-Q4_K_M.gguf

Builds llama-cpp-python from its source on PyPI (minutes, once; nothing else needs a network), writes a
GGUF file of each shape in each format (random_gguf.py), then measures wideep, llama.cpp, wideep,
llama.cpp, ...: a machine whose speed changes from second to second shows both the same face. Printed
are medians over rounds, their ratio, and which share of the machine's limits each reaches, as `wideep
bench model` measures them; both engines' shares are of the same bound, that of wideep's bytes and
operations: with decode of 1 that is reading what must be read. Beside each round's limits stands the
load of the machine before it (processes that run or wait to, mean of a minute).

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
# llama.cpp's name of a format, and wideep's format with as many bits, or in which it packs it.
FORMATS = {"bf16": "bf16", "q8_0": "int8", "q4_0": "int4", "mxfp4": "mxfp4", "q4_k": "int4m",
           "q5_k": "int8m", "q4_1": "int4h", "q5_1": "int8h"}
ONLY_IN_FILES = ["int4m", "int8m", "int4h", "int8h"]
# By config.json's model_type, without --formats; GPT-OSS is published in MXFP4.
USUAL_FORMATS = {"gpt_oss": ["bf16", "mxfp4"]}


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

    rng = random.Random(options.seed)
    llama = Llama(options.gguf, options.threads)
    vocab = llama.api.llama_vocab_n_tokens(llama.api.llama_model_get_vocab(llama.model))
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
    # Without its vision part: a quarter of the files.
    environment = dict(os.environ, CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-binary", "llama-cpp-python",
                    *PACKAGES], check=True, env=environment)
    return python


def prepare_gguf(python, options, config, quantization):
    path = options.cache / f"{pathlib.Path(config).stem}-{quantization}.gguf"
    if not path.exists():
        print(f"writing {path}", file=sys.stderr)
        part = path.with_suffix(".part")
        subprocess.run([python, HERE / "random_gguf.py", "--config", config, "--format", quantization,
                        "--output", part], check=True)
        part.rename(path)
    return path


def test_arguments(options):
    return ["--threads", str(options.threads), "--prompt", str(options.prompt),
            "--generate", str(options.generate), "--depth", str(options.depth),
            "--batch", ",".join(map(str, options.batch))]


def run_wideep(options, model, seed):
    """The report's JSON; None if this wideep does not support the format. model: arguments."""
    result = subprocess.run([options.wideep, "bench", "model", *model, "--repeat", "1", "--seed", str(seed),
                             "--json", *test_arguments(options)],
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


def compare_format(python, options, config, quantization):
    gguf = prepare_gguf(python, options, config, quantization)
    dtype = FORMATS[quantization]
    model = (["--model", gguf] if options.same_file or dtype in ONLY_IN_FILES else
             ["--config", config, "--random-weights", "--dtype", dtype])
    rounds = run_rounds(python, options, model, gguf)
    print_rounds(rounds, f"{pathlib.Path(config).stem}, {dtype} (llama.cpp: {quantization})")
    return rounds


def compare_file(python, options, gguf):
    rounds = run_rounds(python, options, ["--model", gguf], gguf)
    print_rounds(rounds, pathlib.Path(gguf).name)
    return rounds


def run_rounds(python, options, model, gguf):
    rounds = []
    for seed in range(1, options.rounds + 1):
        load = os.getloadavg()[0]
        rounds.append({"load": load, "wideep": run_wideep(options, model, seed),
                       "llama.cpp": run_llama(python, options, gguf, seed)})
    return rounds


def print_rounds(rounds, title):
    print(f"\n{title}, {len(rounds)} rounds")
    for each in rounds:
        if each["wideep"] is not None:
            print(f"limits  {limits_line(each['wideep']['limits'])}; load {each['load']:.1f}")
    print(f"{'test':<14}{'wideep':>10}{'llama.cpp':>11}  ratio   share of the limit: wideep, llama.cpp")
    for name in rounds[0]["llama.cpp"]:
        llama = statistics.median(each["llama.cpp"][name] for each in rounds)
        if rounds[0]["wideep"] is None:
            print(f"{name:<14}{'-':>10}{llama:>11.1f}  this wideep does not support the format")
            continue
        pairs = [(find_test(each["wideep"], name), each["llama.cpp"][name]) for each in rounds]
        own = statistics.median(test["tokens_per_second"]["median"] for test, _ in pairs)
        ratio = statistics.median(test["tokens_per_second"]["median"] / other for test, other in pairs)
        share = statistics.median(test["share"]["median"] for test, _ in pairs)
        others = statistics.median(test["share"]["median"] * other / test["tokens_per_second"]["median"]
                                   for test, other in pairs)
        print(f"{name:<14}{own:>10.1f}{llama:>11.1f}  {ratio:5.2f}   {pairs[0][0]['bound']:<5}"
              f"{100 * share:>6.1f} %{100 * others:>7.1f} %")
    sys.stdout.flush()  # also into a file: minutes pass until the next table


def find_test(report, name):
    return next(test for test in report["tests"] if test["name"] == name)


def parse_arguments():
    numbers = lambda text: [int(part) for part in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--wideep", default="build/wideep", help="the program; default: %(default)s")
    parser.add_argument("--config", nargs="+", default=[str(HERE / "configs" / "qwen3-moe-1.3b.json")],
                        help="config.json files of families that random_gguf.py knows")
    parser.add_argument("--file", nargs="+", default=[],
                        help="GGUF files to run both on, in place of --config")
    parser.add_argument("--formats", type=lambda text: text.split(","),
                        help=f"of llama.cpp, some of {', '.join(FORMATS)}; default: bf16,q8_0,q4_0, or "
                        "bf16,mxfp4 for GPT-OSS")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32, help="steps of a decode test")
    parser.add_argument("--depth", type=int, default=16, help="tokens before a decode test")
    parser.add_argument("--batch", type=numbers, default=[1, 8, 32], help="A,B,C")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--same-file", action="store_true",
                        help="wideep runs llama.cpp's file too, as it always does of types with minimums")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE, help="for llama.cpp and its models")
    parser.add_argument("--json", type=pathlib.Path, help="file for all figures")
    # How the program calls itself inside the venv.
    parser.add_argument("--role", choices=["compare", "measure"], default="compare",
                        help=argparse.SUPPRESS)
    parser.add_argument("--gguf", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    unknown = sorted(set(options.formats or []) - set(FORMATS))
    if unknown:
        parser.error(f"--formats: expected some of {', '.join(FORMATS)}, found {', '.join(unknown)}")
    return options


def main():
    options = parse_arguments()
    if options.role == "measure":
        return measure_llama(options)
    options.cache.mkdir(parents=True, exist_ok=True)
    python = prepare_venv(options.cache / "venv")
    results = {}
    for file in options.file:
        results[pathlib.Path(file).stem] = compare_file(python, options, file)
    for config in [] if options.file else options.config:
        family = json.loads(pathlib.Path(config).read_text()).get("model_type")
        formats = options.formats or USUAL_FORMATS.get(family, ["bf16", "q8_0", "q4_0"])
        results[pathlib.Path(config).stem] = {name: compare_format(python, options, config, name)
                                              for name in formats}
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
