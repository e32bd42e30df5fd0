// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V4: compressed attention, hyper-connections, experts chosen by √softplus, in the first
// layers by a table of token ids. Its prediction layer is defined by DeepSeek's own program
// (inference/model.py, MTPBlock), vLLM and SGLang, which agree.
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// mlp_layer_types, or num_hash_layers, as published.
void read_hash_layers(const JsonObject& root, ModelConfig* config) {
  const int64_t hashed = root.integer_or("num_hash_layers", 3, {.min = 0, .max = kMaxLayers});
  const std::vector<std::string> words =
      read_layer_words(root, "mlp_layer_types", config->num_layers);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    bool& by_token = config->layers[i].by_token;
    by_token = words.empty() ? static_cast<int64_t>(i) < hashed : words[i] == "hash_moe";
    if (words.empty() || by_token || words[i] == "moe") continue;
    root.complain(fmt::format("mlp_layer_types[{}]", i),
                  fmt::format("expected hash_moe or moe, found {}", base::printable(words[i])));
  }
}

void read_experts_and_router(const JsonObject& root, ModelConfig* config) {
  config->moe_intermediate_size = size_or(root, "moe_intermediate_size", 2048, kMaxIntermediate);
  expect_equal(root, "intermediate_size", "moe_intermediate_size", config->moe_intermediate_size);
  root.integer_or("n_shared_experts", 1, {.min = 1, .max = 1});
  config->shared_intermediate_size = config->moe_intermediate_size;
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV4;
  routing.selection_bias = true;
  routing.num_experts = size_or(root, "n_routed_experts", 256, kMaxExperts);
  expect_equal(root, "num_local_experts", "n_routed_experts", routing.num_experts);
  routing.top_k = size_or(root, "num_experts_per_tok", 6, kMaxExperts);
  if (readable(root)) check_top_k(root, "num_experts_per_tok", routing);
  routing.scaling_factor = read_scale(root, "routed_scaling_factor", 1.5);
  require_word(root, "scoring_func", "sqrtsoftplus");
  require_word(root, "topk_method", "noaux_tc");
  require_flag(root, "norm_topk_prob", true);
  config->activation = {.kind = kernels::Activation::Kind::kClampedSilu,
                        .limit = read_scale(root, "swiglu_limit", 10.0)};
  config->dense_activation = config->activation;
  // What published experts are stored as; the tensors show it themselves.
  if (const std::string dtype = root.string_or("expert_dtype", "fp8");
      dtype != "fp8" && dtype != "fp4") {
    root.complain("expert_dtype",
                  fmt::format("expected fp4 or fp8, found {}", base::printable(dtype)));
  }
}

// The one layer that predicts further tokens attends to a window, and routes by its router.
void read_prediction(const JsonObject& root, ModelConfig* config) {
  constexpr const char* kRatios = "compress_ratios";  // the layer's is after the others
  config->num_mtp_layers = static_cast<int>(
      root.integer_or("num_nextn_predict_layers", 1, {.min = 0, .max = kMaxLayers}));
  config->left_out = {"mtp."};
  config->prediction_layer.window = config->compressed.window;
  const auto own = static_cast<size_t>(config->num_layers);
  const auto ratios = root.has(kRatios) ? root.raw().at(kRatios) : nlohmann::json();
  const bool has_entries = ratios.is_array() && ratios.size() > own && ratios[own] != 0;
  config->names_mtp_layers = config->num_mtp_layers == 1 && !has_entries;
}

// The modules of a layer.
std::vector<std::pair<std::string, std::string>> module_names() {
  std::vector<std::pair<std::string, std::string>> names = {
      {"input_layernorm", "attn_norm"},
      {"post_attention_layernorm", "ffn_norm"},
      {"self_attn.q_a_proj", "attn.wq_a"},
      {"self_attn.q_a_norm", "attn.q_norm"},
      {"self_attn.q_b_proj", "attn.wq_b"},
      {"self_attn.kv_proj", "attn.wkv"},
      {"self_attn.kv_norm", "attn.kv_norm"},
      {"self_attn.kv_norm", "attn.norm"},
      {"self_attn.o_a_proj", "attn.wo_a"},
      {"self_attn.o_b_proj", "attn.wo_b"},
      {"self_attn.sinks", "attn.attn_sink"},
      {"self_attn.compressor.indexer.q_b_proj", "attn.indexer.wq_b"},
      {"self_attn.compressor.indexer.scorer.weights_proj", "attn.indexer.weights_proj"},
      {"mlp.gate.e_score_correction_bias", "ffn.gate.bias"},
      {"mlp.gate", "ffn.gate"}};
  for (const auto& [ours, theirs] :
       {std::pair("compressor.indexer", "indexer.compressor"), {"compressor", "compressor"}}) {
    for (const auto& [part, name] : {std::pair("kv_proj", "wkv"),
                                     {"gate_proj", "wgate"},
                                     {"position_bias", "ape"},
                                     {"kv_norm", "norm"}}) {
      names.emplace_back(fmt::format("self_attn.{}.{}", ours, part),
                         fmt::format("attn.{}.{}", theirs, name));
    }
  }
  for (const char* part : {"fn", "base", "scale"}) {
    names.emplace_back(fmt::format("attn_hc.{}", part), fmt::format("hc_attn_{}", part));
    names.emplace_back(fmt::format("ffn_hc.{}", part), fmt::format("hc_ffn_{}", part));
    names.emplace_back(fmt::format("hc_head.hc_{}", part), fmt::format("hc_head_{}", part));
  }
  for (const auto& [part, name] :
       {std::pair("gate_proj", "w1"), {"up_proj", "w3"}, {"down_proj", "w2"}}) {
    names.emplace_back(fmt::format("mlp.experts.*.{}", part),
                       fmt::format("ffn.experts.*.{}", name));
    names.emplace_back(fmt::format("mlp.shared_experts.{}", part),
                       fmt::format("ffn.shared_experts.{}", name));
  }
  return names;
}

// Those of transformers are below "model.".
void name_v4(ModelConfig* config) {
  weights::TensorNames& names = config->tensor_names;
  names.rename("model.embed_tokens", "model.embed").rename("lm_head", "head");
  const auto modules = module_names();
  const auto rename_prediction = [&](const std::string& canonical, const std::string& published) {
    names.rename(fmt::format("model.layers.{}.{}", config->num_layers, canonical),
                 "mtp.0." + published);
  };
  rename_prediction("shared_head.norm", "norm");
  for (const char* same : {"enorm", "hnorm", "e_proj", "h_proj"}) rename_prediction(same, same);
  for (const auto& [canonical, published] : modules) rename_prediction(canonical, published);
  for (const auto& [canonical, published] : modules) names.rename(canonical, published);
  names.prefix("model.", "model.").prefix("model.", "");
}

}  // namespace

HyperConfig read_hyper_connections(const JsonObject& root) {
  return {.num_streams = static_cast<int>(root.integer_or("hc_mult", 4, {.min = 2, .max = 64})),
          .iterations = size_or(root, "hc_sinkhorn_iters", 20, 1000),
          .epsilon = static_cast<float>(root.number_or("hc_eps", 1e-6, {.min = 0, .max = 0.1}))};
}

void read_deepseek_v4(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  for (const char* key : {"attention_bias", "mlp_bias"}) require_flag(root, key, false);
  config->hyper = read_hyper_connections(root);
  config->hyper.learned_end = true;
  read_compressed_attention(root, config);
  read_hash_layers(root, config);
  read_experts_and_router(root, config);
  read_prediction(root, config);
  name_v4(config);
}

}  // namespace wideep::model
