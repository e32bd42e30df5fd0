// SPDX-License-Identifier: Apache-2.0
#include "random_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "formats/files.h"
#include "formats/safetensors.h"

namespace wideep::tests {
namespace {

using nlohmann::json;

constexpr int kHidden = 64;
constexpr int kVocab = 264;
constexpr int kHeads = 4;

class Writer {
 public:
  explicit Writer(uint32_t seed) : rng_(seed) {}

  // Normal with standard deviation gain / sqrt(columns), as bf16.
  void matrix(const std::string& name, int rows, int columns, float gain = 1.0f) {
    add(name, {rows, columns}, 0.0f, gain / std::sqrt(static_cast<float>(columns)));
  }
  void norm(const std::string& name, int size) { add(name, {size}, 1.0f, 0.1f); }

  void bias(const std::string& name, int size) {
    std::uniform_real_distribution<float> uniform(0.1f, 0.3f);
    auto& values = floats_.emplace_back(size);
    for (float& value : values) value = uniform(rng_);
    tensors_.push_back({name, Dtype::kF32, {size}, std::as_bytes(std::span(values))});
  }

  void mlp(const std::string& prefix, int width) {
    matrix(prefix + "gate_proj.weight", width, kHidden);
    matrix(prefix + "up_proj.weight", width, kHidden);
    matrix(prefix + "down_proj.weight", kHidden, width);
  }

  Status write(const std::string& path) const { return formats::write_safetensors(path, tensors_); }

 private:
  void add(const std::string& name, std::vector<int64_t> shape, float mean, float deviation) {
    std::normal_distribution<float> normal(mean, deviation);
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    auto& values = halves_.emplace_back(count);
    for (Bf16& value : values) value = Bf16(normal(rng_));
    tensors_.push_back({name, Dtype::kBf16, std::move(shape), std::as_bytes(std::span(values))});
  }

  std::mt19937 rng_;
  std::deque<std::vector<Bf16>> halves_;  // deques: the tensors point into them
  std::deque<std::vector<float>> floats_;
  std::vector<formats::TensorToWrite> tensors_;
};

json deepseek_config() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"model_type", "deepseek_v3"},
          {"first_k_dense_replace", 1},
          {"moe_layer_freq", 1},
          {"n_shared_experts", 1},
          {"n_group", 4},
          {"topk_group", 2},
          {"routed_scaling_factor", 1.5},
          {"q_lora_rank", 40},
          {"kv_lora_rank", 32},
          {"qk_nope_head_dim", 16},
          {"qk_rope_head_dim", 8},
          {"v_head_dim", 16},
          {"num_key_value_heads", kHeads},
          {"scoring_func", "sigmoid"},
          {"topk_method", "noaux_tc"},
          {"rope_interleave", true}};
}

json qwen3_config() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"model_type", "qwen3_moe"},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"decoder_sparse_step", 1},
          {"mlp_only_layers", json::array()},
          {"sliding_window", nullptr},
          {"use_sliding_window", false}};
}

json config_json(const RandomModelShape& shape) {
  const bool deepseek = shape.architecture == model::Architecture::kDeepseekV3;
  json config = deepseek ? deepseek_config() : qwen3_config();
  config[deepseek ? "n_routed_experts" : "num_experts"] = shape.num_experts;
  config.update({{"vocab_size", kVocab},
                 {"hidden_size", kHidden},
                 {"num_hidden_layers", shape.num_layers},
                 {"num_attention_heads", kHeads},
                 {"intermediate_size", 96},
                 {"moe_intermediate_size", shape.expert_width},
                 {"num_experts_per_tok", shape.top_k},
                 {"norm_topk_prob", true},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"rms_norm_eps", 1e-6},
                 {"rope_theta", 10000.0},
                 {"rope_scaling", nullptr},
                 {"max_position_embeddings", 4096},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "bfloat16"},
                 {"eos_token_id", 256}});
  return config;
}

void write_latent_attention(Writer& writer, const std::string& prefix) {
  writer.matrix(prefix + "q_a_proj.weight", 40, kHidden);
  writer.norm(prefix + "q_a_layernorm.weight", 40);
  writer.matrix(prefix + "q_b_proj.weight", kHeads * 24, 40, 2.0f);
  writer.matrix(prefix + "kv_a_proj_with_mqa.weight", 40, kHidden);
  writer.norm(prefix + "kv_a_layernorm.weight", 32);
  writer.matrix(prefix + "kv_b_proj.weight", kHeads * 32, 32, 2.0f);
  writer.matrix(prefix + "o_proj.weight", kHidden, kHeads * 16);
}

void write_grouped_attention(Writer& writer, const std::string& prefix) {
  writer.matrix(prefix + "q_proj.weight", kHeads * 16, kHidden);
  writer.matrix(prefix + "k_proj.weight", 2 * 16, kHidden);
  writer.matrix(prefix + "v_proj.weight", 2 * 16, kHidden);
  writer.matrix(prefix + "o_proj.weight", kHidden, kHeads * 16);
  writer.norm(prefix + "q_norm.weight", 16);
  writer.norm(prefix + "k_norm.weight", 16);
}

void write_layer(Writer& writer, const RandomModelShape& shape, int layer) {
  const bool deepseek = shape.architecture == model::Architecture::kDeepseekV3;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  writer.norm(prefix + "input_layernorm.weight", kHidden);
  writer.norm(prefix + "post_attention_layernorm.weight", kHidden);
  if (deepseek) {
    write_latent_attention(writer, prefix + "self_attn.");
  } else {
    write_grouped_attention(writer, prefix + "self_attn.");
  }
  if (deepseek && layer == 0) return writer.mlp(prefix + "mlp.", 96);
  writer.matrix(prefix + "mlp.gate.weight", shape.num_experts, kHidden, 2.0f);
  if (deepseek) {
    writer.bias(prefix + "mlp.gate.e_score_correction_bias", shape.num_experts);
    writer.mlp(prefix + "mlp.shared_experts.", shape.expert_width);
  }
  for (int expert = 0; expert < shape.num_experts; ++expert) {
    writer.mlp(fmt::format("{}mlp.experts.{}.", prefix, expert), shape.expert_width);
  }
}

std::string utf8(int code_point) {
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xc0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3f))};
}

// Byte-level BPE without merges: printable bytes stand for themselves, the others for the code
// points from 256 on (the alphabet of GPT-2's tokenizer).
json tokenizer_json() {
  json vocab;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
                           (byte >= 0xae && byte <= 0xff);
    vocab[utf8(printable ? byte : next++)] = byte;
  }
  json byte_level = {{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens",
           {{{"id", 256},
             {"content", "<|end|>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", json::array()}}}};
}

void expect_ok(const Status& status) { ASSERT_TRUE(status.ok()) << status.message(); }

}  // namespace

void write_random_model(const std::string& directory, const RandomModelShape& shape) {
  Writer writer(shape.seed);
  writer.matrix("model.embed_tokens.weight", kVocab, kHidden, 8.0f);
  for (int layer = 0; layer < shape.num_layers; ++layer) write_layer(writer, shape, layer);
  writer.norm("model.norm.weight", kHidden);
  writer.matrix("lm_head.weight", kVocab, kHidden);
  expect_ok(writer.write(directory + "/model.safetensors"));
  expect_ok(formats::write_file(directory + "/config.json", config_json(shape).dump(2)));
  expect_ok(formats::write_file(directory + "/tokenizer.json", tokenizer_json().dump()));
}

}  // namespace wideep::tests
