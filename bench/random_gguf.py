#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a model with random weights, of the sizes in a config.json, as a GGUF file for llama.cpp.

    bench/random_gguf.py --config bench/configs/gpt-oss-3.5b.json --format mxfp4 --output model.gguf

needs the packages gguf and numpy. All matrices but the router, which is float32, have the given
format. Values are normally distributed with deviation 1 / sqrt(columns), so that activations stay
finite and of usual size; the router's with twice that, which spreads tokens over the experts. Making
and quantising numbers takes longer than all else, so 16 million are made for each width of a matrix,
and repeated.

With --zipf A the experts of each layer are popular as 1 / rank^A, each layer in an order of its own; with 0
all of them alike. Embeddings then share a direction, which routers read their offsets from, and outweigh
what layers add to them: a router sees little more than the token. Without it, what attention adds makes
some experts popular and others not, differently in each text.

compare_llama_cpp.py uses this file. With --served the file has the tokenizer and the template that
served.py gives a model with random weights, for llama-server beside wideep in prompt_cache.py and
agent_turns.py; its context is as long as theirs.
"""

import argparse
import json
import math
import pathlib
import tempfile

from served import write_shape

POOL = 1 << 24  # numbers made for each width of a matrix
ROUTER_DEVIATION = 2.0  # of an expert's logits
EMBEDDING_DEVIATION = 0.8  # with --zipf
ATTENTION_SCALE = 0.1  # of what attention adds, with --zipf
COMMON = 0.3  # cosine between embeddings and the direction that they share, with --zipf


class RandomGguf:
    """A file of one architecture. Tensors are described first and made while they are written, so that
    memory holds only one. Names, keys and shapes are those of llama.cpp."""

    def __init__(self, config, path, quantization):
        import gguf
        import numpy

        self.gguf, self.numpy, self.config = gguf, numpy, config
        self.format = gguf.GGMLQuantizationType[quantization.upper()]
        self.random = numpy.random.default_rng(1)
        self.writer = gguf.GGUFWriter(path, self.architecture)
        self.tokenizer = self.template = None  # of --served
        self.zipf = None
        self.pools = {}  # by columns
        self.makers = []  # of the tensors' values, in their order

    def write(self):
        self.add_sizes()
        self.add_tensors()
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_ti_data_to_file()
        for make in self.makers:
            self.writer.write_tensor_data(make())
        self.writer.close()

    # ---- what families differ in ----

    architecture = ""
    ffn_norm = "ffn_norm"  # the name of the norm before the experts

    def num_experts(self):
        return self.config["num_local_experts"]

    def expert_width(self):
        return self.config["intermediate_size"]

    def head_dim(self):
        return self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"]

    def rope_theta(self):
        return self.config["rope_theta"]

    def rotated(self):
        """Rotated dimensions of a head."""
        return self.head_dim()

    def add_family_sizes(self):
        pass

    def add_mixer(self, layer, name):
        self.add_attention(name)

    def add_family_tensors(self, name):
        """Of a layer, besides its mixer and experts."""

    # ---- what they have in common ----

    def add_sizes(self):
        config, writer = self.config, self.writer
        writer.add_block_count(config["num_hidden_layers"])
        writer.add_context_length(config["max_position_embeddings"])
        writer.add_embedding_length(config["hidden_size"])
        writer.add_feed_forward_length(config["intermediate_size"])
        writer.add_head_count(config["num_attention_heads"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(self.head_dim())
        writer.add_value_length(self.head_dim())
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(self.rope_theta())
        writer.add_rope_dimension_count(self.rotated())
        writer.add_expert_count(self.num_experts())
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(self.expert_width())
        writer.add_vocab_size(config["vocab_size"])
        if self.tokenizer:
            self.add_tokenizer()
        else:
            writer.add_tokenizer_model("no_vocab")
        self.add_family_sizes()

    def add_tokenizer(self):
        writer, model = self.writer, self.tokenizer["model"]
        added = {each["id"]: each["content"] for each in self.tokenizer["added_tokens"]}
        texts = {token: text for text, token in model["vocab"].items()} | added
        types = self.gguf.TokenType
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("deepseek-v3")
        writer.add_token_list([texts[token] for token in range(len(texts))])
        writer.add_token_types([types.CONTROL if token in added else types.NORMAL for token in range(len(texts))])
        writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(1)
        writer.add_add_bos_token(False)  # the template does
        writer.add_chat_template(self.template)

    def add_tensors(self):
        hidden, vocab = self.config["hidden_size"], self.config["vocab_size"]
        if self.zipf is None:
            self.matrix("token_embd", vocab, hidden)
        else:
            self.prepare_popularity()
            self.add_embeddings(vocab, hidden)
        self.matrix("output", vocab, hidden)
        self.vector("output_norm.weight", hidden)
        for layer in range(self.config["num_hidden_layers"]):
            name = f"blk.{layer}."
            self.vector(name + "attn_norm.weight", hidden, 1.0 if self.zipf is None else ATTENTION_SCALE)
            self.vector(name + self.ffn_norm + ".weight", hidden)
            self.add_mixer(layer, name)
            self.add_experts(name)
            self.add_family_tensors(name)

    def add_attention(self, name, query_parts=1):
        """query_parts: 2 if the queries' matrix also makes the output's gate."""
        hidden = self.config["hidden_size"]
        queries = self.config["num_attention_heads"] * self.head_dim()
        keys = self.config["num_key_value_heads"] * self.head_dim()
        self.matrix(name + "attn_q", query_parts * queries, hidden)
        self.matrix(name + "attn_k", keys, hidden)
        self.matrix(name + "attn_v", keys, hidden)
        self.matrix(name + "attn_output", hidden, queries)

    def add_head_norms(self, name):
        self.vector(name + "attn_q_norm.weight", self.head_dim())
        self.vector(name + "attn_k_norm.weight", self.head_dim())

    def add_experts(self, name):
        hidden, experts, width = self.config["hidden_size"], self.num_experts(), self.expert_width()
        self.add_router(name + "ffn_gate_inp.weight", experts, hidden)
        self.matrix(name + "ffn_gate_exps", experts, width, hidden)
        self.matrix(name + "ffn_up_exps", experts, width, hidden)
        self.matrix(name + "ffn_down_exps", experts, hidden, width)

    # ---- popular experts ----

    def prepare_popularity(self):
        signs = self.random.choice([-1.0, 1.0], self.config["hidden_size"])
        self.direction = signs / math.sqrt(len(signs))
        self.offsets = self.popular_offsets(self.num_experts(), self.config["num_experts_per_tok"])

    def popular_offsets(self, experts, top_k):
        """Of the logits, so that an expert is among the top_k as often as its rank says: found by trying."""
        numpy = self.numpy
        wanted = numpy.arange(1, experts + 1) ** -self.zipf
        wanted *= top_k / wanted.sum()
        logits = ROUTER_DEVIATION * self.random.standard_normal((8192, experts), dtype=numpy.float32)
        offsets = numpy.zeros(experts)
        for _ in range(100):
            chosen = numpy.argpartition(-(logits + offsets), top_k - 1, axis=1)[:, :top_k]
            found = numpy.bincount(chosen.ravel(), minlength=experts) / len(logits)
            offsets += numpy.log(wanted / numpy.maximum(found, 1e-4))
        return offsets - offsets.mean()

    def add_embeddings(self, vocab, hidden):
        numpy, q8_0 = self.numpy, self.gguf.GGMLQuantizationType.Q8_0

        def make():
            values = self.random.standard_normal((vocab, hidden), dtype=numpy.float32)
            values -= numpy.outer(values @ self.direction, self.direction)
            values *= math.sqrt(1 - COMMON**2)
            values += COMMON * math.sqrt(hidden) * self.direction
            return self.gguf.quants.quantize(numpy.float32(EMBEDDING_DEVIATION * values), q8_0)

        self.add("token_embd.weight", self.gguf.quants.quant_shape_to_byte_shape((vocab, hidden), q8_0),
                 numpy.uint8, q8_0, make)

    def add_router(self, name, experts, hidden):
        deviation = ROUTER_DEVIATION / math.sqrt(hidden)
        if self.zipf is None:
            self.floats(name, (experts, hidden), deviation=deviation)
            return

        def make():
            rows = self.random.normal(0, deviation / math.sqrt(1 - COMMON**2), (experts, hidden))
            offsets = self.random.permutation(self.offsets) / (COMMON * math.sqrt(hidden))
            rows += self.numpy.outer(offsets - rows @ self.direction, self.direction)
            return self.numpy.float32(rows)

        self.add(name, (experts, hidden), self.numpy.float32, None, make)

    # ---- tensors ----

    def matrix(self, name, *shape):
        self.add(name + ".weight", self.gguf.quants.quant_shape_to_byte_shape(shape, self.format),
                 self.numpy.uint8, self.format, lambda: self.matrix_bytes(shape))

    def matrix_bytes(self, shape):
        columns = shape[-1]
        if columns not in self.pools:
            rows = -(-POOL // columns)
            make = self.random_k if self.format.name in self.K_BYTES else self.quantized
            self.pools[columns] = make(rows, columns)
        pool = self.pools[columns]
        start = int(self.random.integers(len(pool)))  # so that no two matrices are the same
        return self.numpy.resize(self.numpy.roll(pool, start, axis=0), (*shape[:-1], pool.shape[-1]))

    def quantized(self, rows, columns):
        values = self.random.standard_normal((rows, columns), dtype=self.numpy.float32)
        return self.gguf.quants.quantize(values / math.sqrt(columns), self.format)

    # Bytes of a block of 256.
    K_BYTES = {"Q4_K": 144, "Q5_K": 176}

    def random_k(self, rows, columns):
        """Random codes, scales and minimums, which the package gguf cannot make of numbers. Scales and
        minimums have 6 bits: with codes of 4, a scale times a code deviates by 220 from its mean of 240,
        which 7.5 minimums are; with codes of 5, all this is twice as much."""
        size, twice = self.K_BYTES[self.format.name], self.format.name == "Q5_K"
        blocks = self.random.integers(0, 256, (rows, columns // 256, size), dtype=self.numpy.uint8)
        scale = 1 / (260 * (1 + twice) * math.sqrt(columns))
        minimum = 7.5 * (1 + twice) * scale
        blocks[..., :4] = self.numpy.array([scale, minimum], self.numpy.float16).view(self.numpy.uint8)
        return blocks.reshape(rows, -1)

    def vector(self, name, size, mean=1.0, deviation=0.0):
        self.floats(name, (size,), mean, deviation)

    def floats(self, name, shape, mean=0.0, deviation=0.0):
        f32 = self.numpy.float32
        self.add(name, shape, f32, None, lambda: f32(self.random.normal(mean, deviation, shape)))

    def add(self, name, shape, dtype, quantization, make):
        size = math.prod(shape) * self.numpy.dtype(dtype).itemsize
        self.writer.add_tensor_info(name, shape, self.numpy.dtype(dtype), size, quantization)
        self.makers.append(make)


class Qwen3Moe(RandomGguf):
    architecture = "qwen3moe"

    def num_experts(self):
        return self.config["num_experts"]

    def expert_width(self):
        return self.config["moe_intermediate_size"]

    def add_mixer(self, layer, name):
        self.add_attention(name)
        self.add_head_norms(name)


class Mixtral(RandomGguf):
    architecture = "llama"


class GptOss(RandomGguf):
    architecture = "gpt-oss"
    ffn_norm = "post_attention_norm"

    def add_family_sizes(self):
        scaling = self.config["rope_scaling"]
        self.writer.add_sliding_window(self.config["sliding_window"])
        self.writer.add_rope_scaling_type(self.gguf.RopeScalingType.YARN)
        self.writer.add_rope_scaling_factor(scaling["factor"])
        self.writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])

    def add_family_tensors(self, name):
        config = self.config
        hidden, heads, experts = config["hidden_size"], config["num_attention_heads"], self.num_experts()
        keys = config["num_key_value_heads"] * self.head_dim()
        self.vector(name + "attn_sinks.weight", heads, 0, 0.05)
        self.vector(name + "attn_q.bias", heads * self.head_dim(), 0, 0.05)
        self.vector(name + "attn_k.bias", keys, 0, 0.05)
        self.vector(name + "attn_v.bias", keys, 0, 0.05)
        self.vector(name + "attn_output.bias", hidden, 0, 0.05)
        self.vector(name + "ffn_gate_inp.bias", experts, 0, 0.05)
        self.floats(name + "ffn_gate_exps.bias", (experts, self.expert_width()), deviation=0.05)
        self.floats(name + "ffn_up_exps.bias", (experts, self.expert_width()), deviation=0.05)
        self.floats(name + "ffn_down_exps.bias", (experts, hidden), deviation=0.05)


class Qwen3Next(Qwen3Moe):
    architecture = "qwen3next"
    ffn_norm = "post_attention_norm"

    def rotated(self):
        return int(self.head_dim() * self.config["partial_rotary_factor"])

    def add_family_sizes(self):
        config, writer = self.config, self.writer
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
        writer.add_full_attention_interval(config["full_attention_interval"])
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])

    def add_mixer(self, layer, name):
        if (layer + 1) % self.config["full_attention_interval"] == 0:
            self.add_attention(name, query_parts=2)
            self.add_head_norms(name)
        else:
            self.add_delta_net(name)

    def add_delta_net(self, name):
        config = self.config
        hidden, heads = config["hidden_size"], config["linear_num_value_heads"]
        values = heads * config["linear_value_head_dim"]
        convolved = values + 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
        self.matrix(name + "attn_qkv", convolved, hidden)
        self.matrix(name + "attn_gate", values, hidden)
        self.matrix(name + "ssm_ba", 2 * heads, hidden)
        self.floats(name + "ssm_conv1d.weight", (convolved, config["linear_conv_kernel_dim"]), deviation=0.5)
        self.vector(name + "ssm_dt.bias", heads)
        self.vector(name + "ssm_a", heads, mean=-1)
        self.vector(name + "ssm_norm.weight", config["linear_value_head_dim"])
        self.matrix(name + "ssm_out", hidden, values)

    def add_family_tensors(self, name):
        hidden, width = self.config["hidden_size"], self.config["shared_expert_intermediate_size"]
        self.vector(name + "ffn_gate_inp_shexp.weight", hidden, 0, 1 / math.sqrt(hidden))
        self.matrix(name + "ffn_gate_shexp", width, hidden)
        self.matrix(name + "ffn_up_shexp", width, hidden)
        self.matrix(name + "ffn_down_shexp", hidden, width)


# By config.json's model_type.
FAMILIES = {"qwen3_moe": Qwen3Moe, "mixtral": Mixtral, "gpt_oss": GptOss, "qwen3_next": Qwen3Next}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, type=pathlib.Path,
                        help=f"a config.json; model_type one of {', '.join(FAMILIES)}")
    parser.add_argument("--format", required=True,
                        choices=["bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q5_1", "q5_k", "mxfp4"])
    parser.add_argument("--output", required=True, type=pathlib.Path)
    parser.add_argument("--served", action="store_true", help="with a tokenizer and a template")
    parser.add_argument("--zipf", type=float, metavar="A", help="popularity of experts; 0: all alike")
    options = parser.parse_args()
    config = json.loads(options.config.read_text())
    if config.get("model_type") not in FAMILIES:
        parser.error(f"{options.config}: model_type: expected one of {', '.join(FAMILIES)}, "
                     f"found {config.get('model_type')}")
    tokenizer = template = None
    if options.served:
        with tempfile.TemporaryDirectory() as work:
            shape = write_shape(options.config, pathlib.Path(work) / "model")
            config, tokenizer = (json.loads((shape / name).read_text()) for name in ("config.json", "tokenizer.json"))
            template = (shape / "chat_template.jinja").read_text()
    file = FAMILIES[config["model_type"]](config, options.output, options.format)
    file.tokenizer, file.template, file.zipf = tokenizer, template, options.zipf
    file.write()


if __name__ == "__main__":
    main()
