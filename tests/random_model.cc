// SPDX-License-Identifier: Apache-2.0
//
// Matrices are scaled by the root of their columns, so that activations keep their size through the
// layers; embeddings and routers are larger, so that tokens differ and are routed to different
// experts. The end token's row of the head is zero, so that it is never the likeliest: greedy
// answers have the length that a test asks for. Tensors are listed by the model's own code, so that
// every family that is added has a random model, too. A token is a byte, so that every text and
// every answer has tokens.
#include "random_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <vector>

#include "formats/files.h"
#include "model/config/config.h"
#include "model/tensor_list.h"
#include "tensor_files/safetensors.h"

namespace wideep::tests {
namespace {

using nlohmann::json;

constexpr int kHidden = 64;
constexpr int kVocab = 264;
constexpr int kEnd = 256;
constexpr int kHeads = 4;

class Writer {
 public:
  Writer(const model::ModelConfig& config, uint32_t seed) : config_(config), rng_(seed) {
    if (config.names_mtp_layers && config.num_mtp_layers > 0) {
      EXPECT_TRUE(model::add_prediction_layers(config.num_mtp_layers, &config_).ok());
    }
  }

  Status write(const std::string& path) {
    for (const model::ListedTensor& tensor : model::all_tensors(config_)) add(tensor);
    return tensor_files::write_safetensors(path, tensors_);
  }

 private:
  struct Scale {
    float mean = 0.0f;
    float deviation = 1.0f;
  };

  // Matrices: normal with deviation gain / sqrt(columns).
  Scale scale_of(const model::ListedTensor& tensor) const {
    const auto is = [&](const char* part) { return tensor.name.find(part) != std::string::npos; };
    if (tensor.use == model::TensorUse::kVector) {
      if (is("norm.bias") || is(".bias")) return {0.0f, 0.1f};
      if (is("norm")) return {config_.norms_add_one && !is("linear_attn") ? 0.0f : 1.0f, 0.1f};
      if (is("conv")) return {0.0f, 0.5f};
      return {0.0f, 0.5f};  // sinks, A_log, dt_bias
    }
    float gain = 1.0f;
    if (tensor.use == model::TensorUse::kEmbedding) gain = 8.0f;
    for (const model::TensorUse use :
         {model::TensorUse::kFloat, model::TensorUse::kQueryB, model::TensorUse::kLatent}) {
      if (tensor.use == use) gain = 2.0f;
    }
    return {0.0f, gain / std::sqrt(static_cast<float>(tensor.shape.back()))};
  }

  void add(const model::ListedTensor& tensor) {
    if (tensor.name.ends_with("e_score_correction_bias")) return add_selection_bias(tensor);
    if (tensor.name.ends_with("tid2eid")) return add_expert_table(tensor);
    const Scale scale = scale_of(tensor);
    std::normal_distribution<float> normal(scale.mean, scale.deviation);
    auto& values = halves_.emplace_back(static_cast<size_t>(tensor.num_elements()));
    for (Bf16& value : values) value = Bf16(normal(rng_));
    if (tensor.name == config_.head_tensor()) {
      std::fill_n(values.begin() + int64_t{kEnd} * columns_of(tensor), columns_of(tensor),
                  Bf16(0.0f));
    }
    tensors_.push_back({tensor.name, Dtype::kBf16, tensor.shape, std::as_bytes(std::span(values))});
  }
  static int64_t columns_of(const model::ListedTensor& tensor) { return tensor.shape.back(); }

  void add_selection_bias(const model::ListedTensor& tensor) {
    std::uniform_real_distribution<float> uniform(0.1f, 0.3f);
    auto& values = floats_.emplace_back(static_cast<size_t>(tensor.num_elements()));
    for (float& value : values) value = uniform(rng_);
    tensors_.push_back({tensor.name, Dtype::kF32, tensor.shape, std::as_bytes(std::span(values))});
  }

  // Any experts, those of a token all different.
  void add_expert_table(const model::ListedTensor& tensor) {
    auto& values = integers_.emplace_back();
    std::vector<int32_t> experts(static_cast<size_t>(config_.routing.num_experts));
    std::iota(experts.begin(), experts.end(), 0);
    for (int64_t id = 0; id < tensor.shape[0]; ++id) {
      std::shuffle(experts.begin(), experts.end(), rng_);
      values.insert(values.end(), experts.begin(), experts.begin() + tensor.shape[1]);
    }
    tensors_.push_back({tensor.name, Dtype::kI32, tensor.shape, std::as_bytes(std::span(values))});
  }

  model::ModelConfig config_;  // with prediction layers, where the file has them
  std::mt19937 rng_;
  std::deque<std::vector<Bf16>> halves_;  // deques: the tensors point into them
  std::deque<std::vector<float>> floats_;
  std::deque<std::vector<int32_t>> integers_;
  std::vector<tensor_files::TensorToWrite> tensors_;
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
  const bool deepseek = shape.family == "deepseek_v3";
  json config = deepseek ? deepseek_config() : qwen3_config();
  config[deepseek ? "n_routed_experts" : "num_experts"] = shape.num_experts;
  if (shape.num_predicting > 0) config["num_nextn_predict_layers"] = shape.num_predicting;
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
                 {"eos_token_id", kEnd}});
  return config;
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

// Experts wide enough to be cut into slices.
void widen(json* config) {
  constexpr int kWidth = 48;
  const auto set = [&](const char* key) {
    json& value = (*config)[key];
    if (!value.is_array()) {
      value = kWidth;
      return;
    }
    for (json& each : value) each = kWidth;
  };
  if (config->contains("ffn_config")) {  // DBRX
    (*config)["ffn_config"]["ffn_hidden_size"] = kWidth;
    return;
  }
  if (!config->contains("moe_intermediate_size") || (*config)["moe_intermediate_size"].is_array()) {
    set("intermediate_size");
  }
  for (const char* key : {"moe_intermediate_size", "moe_latent_size"}) {
    if (config->contains(key) && !(*config)[key].is_null()) set(key);
  }
}

void write_model(const std::string& directory, const json& config_json, uint32_t seed) {
  const std::string text = config_json.dump(2);
  const auto config = model::parse_model_config(text, "config.json");
  expect_ok(config.status());
  expect_ok(Writer(*config, seed).write(directory + "/model.safetensors"));
  expect_ok(formats::write_file(directory + "/config.json", text));
  expect_ok(formats::write_file(directory + "/tokenizer.json", tokenizer_json().dump()));
}

}  // namespace

void write_random_model(const std::string& directory, const RandomModelShape& shape) {
  write_model(directory, config_json(shape), shape.seed);
}

void write_random_model_like(const std::string& directory, const std::string& golden,
                             uint32_t seed) {
  const auto text = formats::read_file(WIDEEP_SOURCE_DIR "/tests/golden/family_models/" + golden +
                                       "/config.json");
  expect_ok(text.status());
  json config = json::parse(*text);
  json& text_config = config.contains("text_config") ? config["text_config"] : config;
  for (json* object : {&config, &text_config}) {
    for (const char* key :
         {"quantization_config", "bos_token_id", "eos_token_id", "pad_token_id"}) {
      object->erase(key);
    }
  }
  widen(&text_config);
  text_config["vocab_size"] = kVocab;
  text_config["eos_token_id"] = kEnd;
  // Of any name.
  for (const char* key : {"model_max_length", "max_seq_len"}) text_config.erase(key);
  text_config["max_position_embeddings"] = 4096;
  write_model(directory, config, seed);
}

}  // namespace wideep::tests
