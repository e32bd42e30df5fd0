#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Converts golden models to GGUF files with llama.cpp's own converter.

    tests/golden/make_gguf_models.py --llama-cpp DIR [--all] [--type f32] [--output DIR] [MODEL ...]

DIR is llama.cpp's source (in llama-cpp-python's on PyPI: vendor/llama.cpp); needs torch and
transformers as make_models.py does. Without models those of MODELS, which are committed in
gguf/models: at least one of each architecture that llama.cpp writes for a family of wideep. --all:
every golden model that the converter takes. The files have no tokenizer.

Two kinds of golden models cannot be GGUF files: converters refuse some, and some have settings that
the format does not hold (llama.cpp computes the published models' for all), so that the answers
differ. --all says which were refused.
"""
import argparse
import json
import logging
import pathlib
import shutil
import sys
import tempfile

GOLDEN = pathlib.Path(__file__).parent
MODELS = ["afmoe_published", "bailing_hybrid_plain", "cohere2_moe_published",
          "dbrx_published", "phimoe_published", "deepseek_groups", "deepseek_v2_groups",
          "deepseek_v32_groups", "deepseek_yarn", "dots1_published", "ernie4_5_moe_interval",
          "ernie4_5_moe_published", "exaone_moe_plain", "exaone_moe_published",
          "gemma4_text_dense", "gemma4_text_plain", "glm4_moe_lite_plain", "glm4_moe_norm_bias",
          "glm_moe_dsa_shared", "gpt_oss_plain", "granitemoe_bias", "granitemoehybrid_dense",
          "granitemoehybrid_plain", "granitemoeshared_plain", "hunyuan_v1_moe_minimal",
          "hy_v3_published", "kimi_k2_plain", "kimi_linear_plain", "laguna_full", "laguna_odd",
          "laguna_plain", "lfm2_moe_plain", "llama4_published", "llama_bias", "llama_llama3",
          "llama_tied", "mellum_plain", "mimo_v2_flash_published", "minimax_m2_plain",
          "minimax_m3_plain", "mistral3_groups", "mistral_plain", "mixtral_plain",
          "ernie4_5_moe_published", "exaone_moe_plain", "exaone_moe_published", "gemma4_text_dense",
          "gemma4_text_plain", "glm4_moe_lite_plain", "glm4_moe_norm_bias", "glm_moe_dsa_shared",
          "gpt_oss_plain", "granitemoe_bias", "granitemoehybrid_dense", "granitemoehybrid_plain",
          "granitemoeshared_plain", "hunyuan_v1_moe_minimal", "hy_v3_published", "kimi_k2_plain",
          "kimi_linear_plain", "laguna_full", "laguna_odd", "laguna_plain", "lfm2_moe_plain",
          "llama4_published", "llama_bias", "llama_llama3", "llama_tied", "mellum_plain",
          "mimo_v2_flash_published", "minimax_m2_plain", "minimax_m3_plain", "mistral3_groups", "mistral_plain",
          "mixtral_plain", "olmoe_plain", "qwen2_moe_plain", "qwen2_tied", "qwen3_5_moe_plain",
          "qwen3_5_moe_square", "qwen3_bias", "qwen3_gqa", "qwen3_next_plain", "qwen3_next_square",
          "qwen3_plain", "solar_open_published", "solar_open_tied", "step3p7_published"]
MODELS = ["deepseek_groups", "deepseek_v2_groups", "deepseek_v32_groups",
          "deepseek_v4_fp4", "deepseek_yarn",
          "dots1_published", "ernie4_5_moe_interval", "ernie4_5_moe_published", "exaone_moe_plain",
          "exaone_moe_published", "gemma4_text_dense", "gemma4_text_plain", "glm4_moe_lite_plain",
          "glm4_moe_norm_bias", "glm5_next_published", "glm_moe_dsa_shared", "gpt_oss_plain",
          "granitemoe_bias", "granitemoehybrid_dense", "granitemoehybrid_plain",
          "granitemoeshared_plain",
          "hunyuan_v1_moe_minimal", "hy_v3_published", "kimi_k2_plain", "kimi_linear_plain",
          "lfm2_moe_plain", "llama4_published", "llama_bias", "llama_llama3", "llama_tied",
          "minimax_m2_plain", "mistral3_groups", "mistral_plain", "mixtral_plain",
          "nemotron_h_dense", "nemotron_h_latent", "nemotron_h_plain", "olmoe_plain",
          "qwen2_moe_plain", "qwen2_tied", "qwen3_5_moe_plain", "qwen3_5_moe_square",
          "qwen3_bias", "qwen3_gqa", "qwen3_next_plain", "qwen3_next_square", "qwen3_plain",
          "solar_open_published", "solar_open_tied", "step3p7_published"]


def load_converter(source):
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    import conversion
    logging.disable(logging.CRITICAL)
    return conversion


def complete(config, model):
    """Adds keys that the converter asks for and that these configs leave out: their defaults."""
    layers = config.get("num_hidden_layers")
    if model.startswith("hunyuan"):
        config.setdefault("moe_intermediate_size", config["intermediate_size"])
        for key in ("moe_intermediate_size", "moe_topk", "num_shared_expert"):
            value = config.get(key, 1)
            config[key] = value if isinstance(value, list) else [value] * layers
        if isinstance(config.get("num_experts"), list):
            config["num_experts"] = config["num_experts"][0]
    if model.startswith("minimax") and "rotary_dim" not in config:
        rope = config.get("rope_parameters", {})
        share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1))
        config["rotary_dim"] = int(share * config.get("head_dim", 128))
    if model.startswith("minimax_m3"):  # whose published keys transformers reads into others
        text = config.get("text_config", config)
        text["n_shared_experts"] = 1
        text["moe_layer_freq"] = [int(word == "sparse") for word in text["mlp_layer_types"]]
        text["sparse_attention_config"] = {
            "sparse_num_index_heads": text["index_n_heads"],
            "sparse_index_dim": text["index_head_dim"],
            "sparse_topk_blocks": text["index_topk_blocks"],
            "sparse_block_size": text["index_block_size"],
            "sparse_local_block": text["index_local_blocks"],
        }
    if model.startswith("granitemoehybrid"):
        words = {"linear_attention": "mamba", "full_attention": "attention"}
        config["layer_types"] = [words[word] for word in config["layer_types"]]
    if model.startswith("nemotron_h"):
        # By words the converter knows no layers of MLPs.
        letters = {"linear_attention": "M", "full_attention": "*", "moe": "E", "mlp": "-"}
        words = config.pop("layers_block_type", None)
        if words is not None:
            config["hybrid_override_pattern"] = "".join(letters[word] for word in words)
            config["num_hidden_layers"] = len(words)
        if model.endswith("dense"):
            for key in ("num_experts_per_tok", "n_routed_experts"):
                config.pop(key, None)
    if model.startswith("llama4"):
        text = config.get("text_config", config)
        text.setdefault("interleave_moe_layer_step", 1)
    if model.startswith(("deepseek_", "kimi", "glm4_moe_lite", "glm_moe_dsa")):
        # Published configs have it, and llama.cpp takes softmax for none.
        softmax = model.startswith("deepseek_v2")
        config.setdefault("scoring_func", "softmax" if softmax else "sigmoid")
    if model.startswith("dots1"):
        config["scoring_func"] = "sigmoid"  # the converter does not know noaux_tc
        for key, value in (("first_k_dense_replace", 0), ("routed_scaling_factor", 1.0),
                           ("norm_topk_prob", False)):
            config.setdefault(key, value)
    if model.startswith("exaone_moe"):
        config.setdefault("scoring_func", "sigmoid")
        for key, value in (("num_shared_experts", 1), ("first_k_dense_replace", 1),
                           ("routed_scaling_factor", 2.5), ("norm_topk_prob", True)):
            config.setdefault(key, value)
    if model.startswith("solar_open"):
        # The converter takes half of a head for an absent key, and reads the new spelling.
        config.setdefault("partial_rotary_factor", 1.0)
        config.setdefault("norm_topk_prob", True)
        config.setdefault("n_shared_experts", 1)
    if model.startswith("laguna") and "sliding_attention" not in config["layer_types"]:
        config["sliding_window"] = None  # as of the model without windows; the file has no list
    if model.startswith("phimoe"):
        config["architectures"] = ["PhiMoEForCausalLM"]
    if model.startswith("cohere2_moe"):
        config.setdefault("num_key_value_heads", config["num_attention_heads"])
    if model.startswith("bailing_hybrid"):
        config["architectures"] = ["BailingMoeV3ForCausalLM"]
        config.setdefault("kda_safe_gate", True)
        config.setdefault("moe_shared_expert_intermediate_size",
                          config["moe_intermediate_size"] * config.get("num_shared_experts", 1))
    if model.startswith("qwen2_moe") or model.startswith("qwen3"):
        config.setdefault("num_key_value_heads", config.get("num_attention_heads"))
    return config


# The converter is written for the keys of these published files, which transformers translates.
AS_PUBLISHED = ("bailing_hybrid", "glm5_next", "mimo_v2_flash", "step3p7")
AS_PUBLISHED = ("bailing_hybrid", "deepseek_v4", "mimo_v2_flash", "step3p7")


def with_tokens(path, folder):
    """A copy of a model with as many tokens as rows: Gemma's converter counts them."""
    copy = pathlib.Path(folder) / path.name
    shutil.copytree(path, copy)
    config = json.loads((path / "config.json").read_text())
    count = config.get("text_config", config)["vocab_size"]
    tokens = {"model": {"vocab": {str(i): i for i in range(count)}}, "added_tokens": []}
    (copy / "tokenizer.json").write_text(json.dumps(tokens))
    return copy


def without_fp8(path, folder):
    """A copy of a model whose FP8 matrices are BF16, which holds them exactly: the converter would
    round them. Experts stay in MXFP4."""
    import torch
    from safetensors.torch import load_file, save_file

    copy = pathlib.Path(folder) / path.name
    copy.mkdir()
    config = json.loads((path / "config.json").read_text())
    del config["quantization_config"]
    (copy / "config.json").write_text(json.dumps(config))
    tensors = load_file(path / "model.safetensors")
    for name in [n for n in tensors if n.endswith(".scale") and ".experts." not in n]:
        weight = name.removesuffix("scale") + "weight"
        tensors[weight] = (tensors[weight].float() * tensors.pop(name).float()).to(torch.bfloat16)
    save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return copy


def convert(conversion, path, output, kind):
    import gguf
    import torch

    original = conversion.ModelBase.load_hparams

    def load(directory, is_mistral_format=False):
        if path.name.startswith(AS_PUBLISHED):
            config = json.loads((path / "config.json").read_text())
        else:
            config = original(directory, is_mistral_format)
        return complete(config, path.name)

    hparams = load(path)
    architecture = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    model_class = conversion.get_model_class(architecture)

    def no_tokens(self):
        self.gguf_writer.add_tokenizer_model("none")
        # llama.cpp takes the size from here, where there are no tokens.
        if not any(key.endswith(".vocab_size") for key in self.gguf_writer.kv_data[0]):
            self.gguf_writer.add_vocab_size(self.hparams["vocab_size"])

    # Mistral 3's has one for each of its text models.
    for each in (model_class, *filter(lambda c: isinstance(c, type), vars(model_class).values())):
        each.set_vocab = no_tokens
    for cache in ("_experts_cache",):
        if hasattr(model_class, cache):
            setattr(model_class, cache, {})
    if hasattr(model_class, "no_mtp"):
        model_class.no_mtp = True
    conversion.ModelBase.load_hparams = staticmethod(load)
    try:
        with torch.inference_mode():
            types = {"f32": "ALL_F32", "bf16": "MOSTLY_BF16", "f16": "MOSTLY_F16",
                     "q8_0": "MOSTLY_Q8_0"}
            model = model_class(path, gguf.LlamaFileType[types[kind]], output, eager=True,
                                hparams=load(path))
            model.write()
    finally:
        conversion.ModelBase.load_hparams = original


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--llama-cpp", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, default=GOLDEN / "gguf" / "models")
    parser.add_argument("--type", default="bf16", choices=["f32", "bf16", "f16", "q8_0"])
    parser.add_argument("--all", action="store_true")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    conversion = load_converter(options.llama_cpp)
    options.output.mkdir(parents=True, exist_ok=True)
    folders = [GOLDEN / "family_models", GOLDEN / "models"]
    found = {path.name: path for folder in folders for path in sorted(folder.iterdir())}
    refused = 0
    for name in options.models or (sorted(found) if options.all else MODELS):
        target = options.output / f"{name}.gguf"
        try:
            with tempfile.TemporaryDirectory() as folder:
                path = found[name]
                if name.startswith("gemma4"):
                    path = with_tokens(path, folder)
                if name.startswith("deepseek_v4"):
                    path = without_fp8(path, folder)
                convert(conversion, path, target, options.type)
        except Exception as error:  # whatever the converter finds wrong
            if not options.all:
                raise
            refused += 1
            target.unlink(missing_ok=True)
            print(f"{name}: not converted: {error!r}"[:150])
    if options.all:
        print(f"{len(found) - refused} of {len(found)} converted")


if __name__ == "__main__":
    main()
