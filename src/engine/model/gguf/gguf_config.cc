// SPDX-License-Identifier: Apache-2.0
//
// read_common() writes the keys that most architectures have, then the function of the architecture
// adds, renames and removes some. Adding one is such a function and a line of kArchitectures.
//
// What metadata and tensors both say is taken from the tensors (which layers are dense, biases,
// tied embeddings), because converters of different ages write different metadata. Each key
// remembers where it comes from, so that an error of the reader of config.json can name the key of
// the file.
#include "model/gguf/gguf_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/printable.h"
#include "base/try.h"
#include "formats/json_text.h"
#include "model/gguf/gguf_keys.h"
#include "model/gguf/gguf_layer_kinds.h"
#include "tensor_files/block_type.h"
#include "tensor_files/shape.h"

namespace wideep::model {
namespace {

using Json = GgufKeys::Json;

// ---- what most architectures have ----

constexpr int64_t kSigmoid = 2;  // expert_gating_func

void read_attention(GgufKeys& keys) {
  keys.copy("num_attention_heads", "attention.head_count");
  keys.copy_or("num_key_value_heads", "attention.head_count_kv",
               keys.value("attention.head_count"));
  keys.copy("head_dim", "attention.key_length");
  keys.has("attention.value_length");
  keys.config["attention_bias"] = keys.some_layer_has("attn_q.bias");
}

// A share of the head's dimensions that is rotated.
void read_partial_rotary(GgufKeys& keys) {
  const double heads = std::max(1.0, keys.number_or("attention.head_count", 1));
  const double dim =
      keys.number_or("attention.key_length", keys.number_or("embedding_length", 0) / heads);
  const double rotated = keys.number_or("rope.dimension_count", dim);
  if (dim > 0) keys.config["partial_rotary_factor"] = rotated / dim;
}

void read_experts(GgufKeys& keys, const char* count, const char* width) {
  keys.copy(count, "expert_count");
  keys.copy("num_experts_per_tok", "expert_used_count");
  // Files of old converters give the width of experts as that of layers.
  keys.copy_or(width, "expert_feed_forward_length", keys.value("feed_forward_length"));
}

bool is_moe(const GgufKeys& keys, int64_t layer) {
  return keys.has_tensor(fmt::format("blk.{}.ffn_gate_inp.weight", layer));
}

// The layers of one kind; more layers than any model has are an error of the reader of config.json.
Json layers_of(const GgufKeys& keys, bool moe) {
  Json layers = Json::array();
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    if (is_moe(keys, layer) == moe) layers.push_back(layer);
  }
  return layers;
}

// The tensors say it, whatever the metadata; files without any layer follow the metadata.
int64_t num_leading_dense(const GgufKeys& keys) {
  const int64_t said = keys.integer_or("leading_dense_block_count", 0);
  const Json moe = layers_of(keys, true);
  return moe.empty() ? said : moe.front().get<int64_t>();
}

// Rotary scaling in the spelling of transformers; nothing: none.
Json rope_scaling(GgufKeys& keys) {
  const double linear = keys.number_or("rope.scale_linear", 1.0);
  const double factor = keys.number_or("rope.scaling.factor", linear);
  const std::string type = keys.text_or("rope.scaling.type", "linear");
  keys.has("rope.scaling.finetuned");
  keys.set_origin("rope_scaling.rope_type", "rope.scaling.type");
  keys.set_origin("rope_scaling.factor", "rope.scaling.factor");
  if (type == "none" || (type == "linear" && factor == 1.0)) return nullptr;
  Json scaling = {{"rope_type", type}, {"factor", factor}};
  if (type != "yarn") return scaling;  // another type than linear is refused by its reader
  const auto copy = [&](const char* key, std::string_view from) {
    if (!keys.has(from)) return;
    scaling[key] = keys.value(from);
    keys.set_origin(fmt::format("rope_scaling.{}", key), from);
  };
  copy("original_max_position_embeddings", "rope.scaling.original_context_length");
  copy("beta_fast", "rope.scaling.yarn_beta_fast");
  copy("beta_slow", "rope.scaling.yarn_beta_slow");
  copy("attention_factor", "rope.scaling.attn_factor");
  copy("attention_factor", "rope.scaling.yarn_attn_factor");
  return scaling;
}

void read_rope(GgufKeys& keys) {
  keys.copy_or("rope_theta", "rope.freq_base", 10000.0);
  const Json scaling = rope_scaling(keys);
  if (!scaling.is_null()) keys.config["rope_scaling"] = scaling;
  for (const char* known : {"rope.dimension_count", "rope.dimension_sections"}) keys.has(known);
}

void read_common(GgufKeys& keys) {
  Json& config = keys.config;
  keys.copy("hidden_size", "embedding_length");
  config["num_hidden_layers"] = keys.num_layers();
  keys.set_origin("num_hidden_layers", "block_count");
  keys.copy("max_position_embeddings", "context_length");
  keys.copy("rms_norm_eps", "attention.layer_norm_rms_epsilon");
  keys.set_origin_tensor("vocab_size", "token_embd.weight");
  if (const auto* embedding = keys.tensor("token_embd.weight")) {
    config["vocab_size"] = embedding->shape.front();
  }
  config["tie_word_embeddings"] = !keys.has_tensor("output.weight");
  keys.has("vocab_size");
  read_attention(keys);
  read_rope(keys);
}

// expert_weights_scale where llama.cpp computes it, and not every reader of config.json has a key.
bool scales_weights(const GgufKeys& keys) {
  const double scale = keys.number_or("expert_weights_scale", 1.0);
  return scale != 1.0 && scale != 0.0;  // llama.cpp takes 0 for none
}

// mlp_layer_types, by the tensors. Files without any layer follow the metadata.
Json mlp_words(const GgufKeys& keys) {
  const int64_t dense = num_leading_dense(keys);
  const bool is_known = !layers_of(keys, true).empty();
  Json words = Json::array();
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    words.push_back((is_known ? is_moe(keys, layer) : layer >= dense) ? "sparse" : "dense");
  }
  return words;
}

// head_dim of families whose own value for files without it is another than llama.cpp's.
void read_head_dim(GgufKeys& keys) {
  const int64_t heads = std::max<int64_t>(1, keys.integer_or("attention.head_count", 1));
  keys.copy_or("head_dim", "attention.key_length", keys.integer_or("embedding_length", 0) / heads);
}

// ---- the architectures ----

void read_qwen3moe(GgufKeys& keys) {
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.copy_or("intermediate_size", "feed_forward_length",
               keys.value("expert_feed_forward_length"));
  keys.config["norm_topk_prob"] = true;
  const Json dense = layers_of(keys, false);
  if (!dense.empty()) keys.config["mlp_only_layers"] = dense;
}

void read_shared_expert_of_qwen(GgufKeys& keys) {
  read_qwen3moe(keys);
  keys.copy_or("shared_expert_intermediate_size", "expert_shared_feed_forward_length",
               keys.value("expert_feed_forward_length"));
}

void read_qwen2moe(GgufKeys& keys) {
  read_shared_expert_of_qwen(keys);
  keys.config["norm_topk_prob"] = false;
  keys.rename("attention_bias", "qkv_bias");
}

// Gated delta nets in most layers.
void read_qwen3next(GgufKeys& keys) {
  read_shared_expert_of_qwen(keys);
  read_partial_rotary(keys);
  Json& config = keys.config;
  const int64_t heads = std::max<int64_t>(1, keys.integer_or("ssm.time_step_rank", 1));
  keys.copy("linear_num_value_heads", "ssm.time_step_rank");
  keys.copy("linear_num_key_heads", "ssm.group_count");
  keys.copy("linear_key_head_dim", "ssm.state_size");
  keys.copy("linear_conv_kernel_dim", "ssm.conv_kernel");
  if (keys.has("ssm.inner_size")) {
    config["linear_value_head_dim"] = keys.integer_or("ssm.inner_size", 0) / heads;
    keys.set_origin("linear_value_head_dim", "ssm.inner_size");
  }
  const std::vector<int64_t> recurrent = keys.integers("attention.recurrent_layers");
  const int64_t interval = std::max<int64_t>(1, keys.integer_or("full_attention_interval", 4));
  Json types = Json::array();
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    const bool listed = layer < static_cast<int64_t>(recurrent.size());
    const bool is_linear =
        listed ? recurrent[static_cast<size_t>(layer)] != 0 : (layer + 1) % interval != 0;
    types.push_back(is_linear ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = types;
  config["mtp_num_hidden_layers"] = keys.num_predicting();
}

void read_qwen35moe(GgufKeys& keys) {
  read_qwen3next(keys);
  keys.config.erase("intermediate_size");
}

void read_mixtral(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  keys.config.erase("attention_bias");
}

void read_granitemoe(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  const double dim = keys.number_or("attention.key_length",
                                    keys.number_or("embedding_length", 1) /
                                        std::max(1.0, keys.number_or("attention.head_count", 1)));
  keys.copy_or("attention_multiplier", "attention.scale", 1.0 / std::sqrt(std::max(dim, 1.0)));
  keys.copy("embedding_multiplier", "embedding_scale");
  keys.copy("residual_multiplier", "residual_scale");
  keys.copy("logits_scaling", "logit_scale");
  keys.copy("shared_intermediate_size", "expert_shared_feed_forward_length");
  if (keys.config.contains("shared_intermediate_size")) {
    keys.config["architectures"] = {"GraniteMoeSharedForCausalLM"};
    keys.config["model_type"] = "granitemoeshared";
  }
}

// Mamba-2 of all layers without attention. Files do not hold the limits of a step: none.
void read_mamba2(GgufKeys& keys) {
  keys.copy("mamba_n_heads", "ssm.time_step_rank");
  keys.copy("mamba_n_groups", "ssm.group_count");
  keys.copy("mamba_d_state", "ssm.state_size");
  keys.copy("mamba_d_conv", "ssm.conv_kernel");
  Json& config = keys.config;
  const int64_t hidden = std::max<int64_t>(1, keys.integer_or("embedding_length", 1));
  const int64_t inner = keys.integer_or("ssm.inner_size", 2 * hidden);
  config["mamba_expand"] = static_cast<double>(inner) / static_cast<double>(hidden);
  keys.set_origin("mamba_expand", "ssm.inner_size");
  config["mamba_conv_bias"] = keys.some_layer_has("ssm_conv1d.bias");
  config["mamba_proj_bias"] = keys.some_layer_has("ssm_in.bias");
}

// llama.cpp rotates where the rotation says that it was trained ("finetuned").
void read_granitehybrid(GgufKeys& keys) {
  read_granitemoe(keys);
  Json& config = keys.config;
  config["architectures"] = {"GraniteMoeHybridForCausalLM"};
  config["model_type"] = "granitemoehybrid";
  if (!keys.has("expert_count")) config["num_local_experts"] = 0;
  if (!config.contains("shared_intermediate_size")) {
    keys.copy("shared_intermediate_size", "feed_forward_length");
  }
  read_mamba2(keys);
  const Json rotates = keys.value("rope.scaling.finetuned");
  config["position_embedding_type"] = rotates == true ? "rope" : "nope";
  Json types = Json::array();
  for (const int64_t heads : keys.integers("attention.head_count_kv")) {
    types.push_back(heads == 0 ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = types;
}

// A layer's tensors say which part it is. llama.cpp keeps steps within no limits, and transformers
// above time_step_min, which the file does not hold.
void read_nemotron_h(GgufKeys& keys) {
  keys.copy_or("layer_norm_epsilon", "attention.layer_norm_rms_epsilon",
               keys.value("attention.layer_norm_epsilon"));
  keys.config.erase("rms_norm_eps");
  read_mamba2(keys);
  keys.rename("mamba_n_heads", "mamba_num_heads");
  keys.rename("mamba_n_groups", "n_groups");
  keys.rename("mamba_d_state", "ssm_state_size");
  keys.rename("mamba_d_conv", "conv_kernel");
  keys.rename("mamba_conv_bias", "use_conv_bias");
  keys.rename("mamba_proj_bias", "use_bias");
  Json& config = keys.config;
  config.erase("mamba_expand");
  const int64_t heads = std::max<int64_t>(1, keys.integer_or("ssm.time_step_rank", 1));
  config["mamba_head_dim"] = keys.integer_or("ssm.inner_size", 0) / heads;
  keys.set_origin("mamba_head_dim", "ssm.inner_size");
  config["time_step_min"] = 0.0;
  config["mlp_bias"] = keys.some_layer_has("ffn_up.bias");
  keys.copy("intermediate_size", "feed_forward_length");
  std::string letters;
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    const auto has = [&](const char* name) {
      return keys.has_tensor(fmt::format("blk.{}.{}.weight", layer, name));
    };
    const bool attends = has("attn_q") || has("attn_qkv");
    letters += has("ssm_in") ? 'M' : attends ? '*' : is_moe(keys, layer) ? 'E' : '-';
  }
  config["hybrid_override_pattern"] = letters;
  config["num_nextn_predict_layers"] = keys.num_predicting();
}

void read_nemotron_h_moe(GgufKeys& keys) {
  read_nemotron_h(keys);
  read_experts(keys, "n_routed_experts", "moe_intermediate_size");
  keys.copy("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length");
  keys.copy("moe_latent_size", "moe_latent_size");
  keys.copy_or("n_shared_experts", "expert_shared_count", 1);
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.config["routed_scaling_factor"] =
      scales_weights(keys) ? keys.value("expert_weights_scale") : Json(1.0);
  keys.copy_or("n_group", "expert_group_count", 1);
  keys.copy_or("topk_group", "expert_group_used_count", 1);
  keys.has("expert_gating_func");
}

void read_olmoe(GgufKeys& keys) {
  read_experts(keys, "num_experts", "intermediate_size");
  keys.config["norm_topk_prob"] = false;
  keys.copy("clip_qkv", "attention.clamp_kqv");
}

// llama.cpp computes the activation, and windows in every second layer, for all files.
void read_gpt_oss(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  keys.copy("sliding_window", "attention.sliding_window");
  Json& config = keys.config;
  // Without scaling its reader takes that of the published models.
  if (!config.contains("rope_scaling")) config["rope_scaling"] = {{"rope_type", "default"}};
  // The published models do not round, and the file cannot say it.
  if (config["rope_scaling"]["rope_type"] == "yarn") config["rope_scaling"]["truncate"] = false;
}

void read_lfm2moe(GgufKeys& keys) {
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.config["num_dense_layers"] = num_leading_dense(keys);
  keys.copy("conv_L_cache", "shortconv.l_cache");
  keys.copy_or("routed_scaling_factor", "expert_weights_scale", 1.0);
  keys.has("expert_gating_func");
  Json& config = keys.config;
  config.erase("attention_bias");
  config["norm_topk_prob"] = true;
  config["use_expert_bias"] = keys.some_layer_has("exp_probs_b.bias");
  config["conv_bias"] = keys.some_layer_has("shortconv.in_proj.bias");
  Json types = Json::array();
  for (const int64_t heads : keys.integers("attention.head_count_kv")) {
    types.push_back(heads == 0 ? "conv" : "full_attention");
  }
  config["layer_types"] = types;
}

void read_grouped_experts(GgufKeys& keys) {
  read_experts(keys, "n_routed_experts", "moe_intermediate_size");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy_or("n_shared_experts", "expert_shared_count", 0);
  keys.config["first_k_dense_replace"] = num_leading_dense(keys);
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.config["routed_scaling_factor"] =
      scales_weights(keys) ? keys.value("expert_weights_scale") : Json(1.0);
  keys.copy_or("n_group", "expert_group_count", 1);
  keys.copy_or("topk_group", "expert_group_used_count", 1);
  keys.has("expert_gating_func");
  keys.config["num_nextn_predict_layers"] = keys.num_predicting();
}

// Solar Open's files have this architecture, too: no dense layers, and whole heads are rotated.
void read_glm4moe(GgufKeys& keys) {
  read_grouped_experts(keys);
  if (!keys.has("feed_forward_length") && layers_of(keys, false).empty()) {
    keys.config["intermediate_size"] = keys.value("expert_feed_forward_length");
  }
  read_partial_rotary(keys);
  keys.config["use_qk_norm"] = keys.some_layer_has("attn_q_norm.weight");
}

// The file does not hold windows: llama.cpp attends to all positions.
void read_dots1(GgufKeys& keys) {
  read_grouped_experts(keys);
  keys.config["sliding_window"] = nullptr;
}

// Windows in three of four layers, or those of a list. The others are not rotated, so that the
// windows' base is that of all rotations.
void read_exaone_moe(GgufKeys& keys) {
  read_grouped_experts(keys);
  keys.rename("n_routed_experts", "num_experts");
  keys.rename("n_shared_experts", "num_shared_experts");
  keys.has("expert_shared_feed_forward_length");
  Json& config = keys.config;
  config.erase("attention_bias");
  keys.copy("sliding_window", "attention.sliding_window");
  keys.copy("rope_theta", "rope.freq_base_swa");
  config["layer_types"] = layer_words(sliding_layers(keys, {.layers = 4}));
}

void read_hy_v3(GgufKeys& keys) {
  read_grouped_experts(keys);
  keys.rename("n_routed_experts", "num_experts");
  keys.rename("norm_topk_prob", "route_norm");
  Json& config = keys.config;
  // The file has their width.
  config.erase("n_shared_experts");
  const int64_t width = std::max<int64_t>(1, keys.integer_or("expert_feed_forward_length", 1));
  config["num_shared_experts"] =
      keys.integer_or("expert_shared_feed_forward_length", width) / width;
  keys.set_origin("num_shared_experts", "expert_shared_feed_forward_length");
  config["router_scaling_factor"] = config["routed_scaling_factor"];
}

// Windows, which count the positions before a token, as in the published config.json; their layers
// have heads of keys and values of their own. llama.cpp always divides by the sum of the weights.
void read_mimo2(GgufKeys& keys) {
  constexpr const char* kHeads = "attention.head_count_kv";
  read_grouped_experts(keys);
  Json& config = keys.config;
  config.erase("first_k_dense_replace");
  keys.require("expert_gating_func", kSigmoid);
  keys.copy_or("norm_topk_prob", "expert_weights_norm", true);
  config["mlp_layer_types"] = mlp_words(keys);
  read_head_dim(keys);
  keys.copy_or("v_head_dim", "attention.value_length", config["head_dim"]);
  keys.copy_or("attention_value_scale", "attention.value_scale", 1.0);
  keys.copy_or("sliding_window_size", "attention.sliding_window", 0);
  const std::vector<bool> slides = sliding_layers(keys, {});
  config["layer_types"] = layer_words(slides);
  const Json full = number_of_kind(keys, kHeads, slides, false);
  const Json sliding = number_of_kind(keys, kHeads, slides, true);
  config["num_key_value_heads"] = full;
  if (full.is_null() && sliding.is_number_integer()) {
    config["num_key_value_heads"] = sliding.get<int64_t>() / 2;
  }
  if (!sliding.is_null()) config["swa_num_key_value_heads"] = sliding;
  keys.set_origin("swa_num_key_value_heads", kHeads);
  read_kind_rotations(keys, {.scales = false});
}

// llama.cpp does not rotate every fourth layer, whatever windows it has; the embeddings are
// always scaled. Weights are not divided by their sum unless the file says so.
void read_afmoe(GgufKeys& keys) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy_or("num_shared_experts", "expert_shared_count", 0);
  keys.copy_or("n_group", "expert_group_count", 1);
  keys.copy_or("topk_group", "expert_group_used_count", 1);
  keys.copy_or("route_norm", "expert_weights_norm", false);
  keys.require("expert_gating_func", kSigmoid);
  read_head_dim(keys);
  Json& config = keys.config;
  keys.require("rope.dimension_count", config["head_dim"]);
  config["route_scale"] = scales_weights(keys) ? keys.value("expert_weights_scale") : Json(1.0);
  config["num_dense_layers"] = num_leading_dense(keys);
  config["mup_enabled"] = true;
  keys.copy_or("sliding_window", "attention.sliding_window", 0);
  keys.require("rope.freq_base_swa", keys.number_or("rope.freq_base", 1e4));
  const std::vector<bool> slides = sliding_layers(keys, {.layers = 4});
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer] == ((layer + 1) % 4 != 0)) continue;
    keys.complain(kPattern,
                  "expected windows in all but every fourth layer, which does not rotate; "
                  "wideep computes no other pattern in this architecture");
  }
  config["layer_types"] = layer_words(slides);
}

// The rows of a layer's gate say whether there is one for each head or for each element.
Json gating_of(GgufKeys& keys, const Json& heads) {
  const tensor_files::GgufTensor* gate = keys.tensor("blk.0.attn_gate.weight");
  const bool is_plain = gate == nullptr || gate->shape.empty() || !heads.is_number_integer();
  return is_plain || gate->shape.front() == heads.get<int64_t>() ? "per-head" : "per-element";
}

// Files without a window have layers of full attention only; else one in four layers has none, the
// first.
// llama.cpp averages both kinds of experts, and rotates in leading dense layers, in all files.
void read_cohere2moe(GgufKeys& keys) {
  read_experts(keys, "num_experts", "intermediate_size");
  keys.copy("layer_norm_eps", "attention.layer_norm_epsilon");
  keys.copy("logit_scale", "logit_scale");
  keys.copy("prefix_dense_intermediate_size", "feed_forward_length");
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.copy_or("num_shared_experts", "expert_shared_count", 0);
  keys.copy_or("sliding_window", "attention.sliding_window", 0);
  read_head_dim(keys);
  Json& config = keys.config;
  keys.require("rope.dimension_count", config["head_dim"]);
  keys.require("rope.freq_base_swa", keys.number_or("rope.freq_base", 1e4));
  const auto small = [&](const char* key) {
    return std::clamp<int64_t>(keys.integer_or(key, 0), 0, 1 << 24);
  };
  keys.require("expert_shared_feed_forward_length",
               small("expert_shared_count") * small("expert_feed_forward_length"));
  constexpr int64_t kSoftmax = 1;
  const bool is_softmax = keys.integer_or("expert_gating_func", kSigmoid) == kSoftmax;
  if (!is_softmax) keys.require("expert_gating_func", kSigmoid);
  config["expert_selection_fn"] = is_softmax ? "softmax" : "sigmoid";
  config["layer_types"] = layer_words(sliding_layers(keys, {.layers = 4}));
  config["mlp_layer_types"] = mlp_words(keys);
  config["num_nextn_predict_layers"] = keys.num_predicting();
}

void read_laguna(GgufKeys& keys) {
  constexpr const char* kHeads = "attention.head_count";
  Json& config = keys.config;
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.copy("intermediate_size", "feed_forward_length");
  const auto factor = [&](std::string_view key, int64_t otherwise) {
    return std::clamp<int64_t>(keys.integer_or(key, otherwise), 0, 1 << 30);
  };
  const int64_t shared = factor("expert_feed_forward_length", 0) * factor("expert_shared_count", 1);
  keys.copy_or("shared_expert_intermediate_size", "expert_shared_feed_forward_length", shared);
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.require("expert_gating_func", kSigmoid);
  config["moe_routed_scaling_factor"] =
      scales_weights(keys) ? keys.value("expert_weights_scale") : Json(1.0);
  config["mlp_layer_types"] = mlp_words(keys);
  keys.copy_or("sliding_window", "attention.sliding_window", 0);
  const bool has_windows = config["sliding_window"] != 0;
  std::vector<bool> slides = sliding_layers(keys, {.layers = 4, .first = true});
  if (!has_windows) slides.assign(slides.size(), false);
  config["layer_types"] = layer_words(slides);
  read_head_dim(keys);
  std::vector<int64_t> heads = keys.integers(kHeads);
  heads.resize(std::min(heads.size(), slides.size()));
  if (!heads.empty()) {
    config["num_attention_heads"] = heads.front();
    config["num_attention_heads_per_layer"] = heads;
    keys.set_origin("num_attention_heads_per_layer", kHeads);
  }
  config["gating"] = gating_of(keys, config["num_attention_heads"]);
  read_kind_rotations(keys);
}

// Qwen3-MoE with layers of two kinds.
void read_mellum(GgufKeys& keys) {
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.copy_or("intermediate_size", "feed_forward_length",
               keys.value("expert_feed_forward_length"));
  Json& config = keys.config;
  config["norm_topk_prob"] = true;
  config["mlp_layer_types"] = mlp_words(keys);
  read_head_dim(keys);
  keys.copy_or("sliding_window", "attention.sliding_window", 0);
  std::vector<bool> slides = sliding_layers(keys, {.layers = 4});
  if (config["sliding_window"] == 0) slides.assign(slides.size(), false);
  config["layer_types"] = layer_words(slides);
  read_kind_rotations(keys);
}

// A number for each layer, or one for all; null: the file has none.
Json numbers_of_layers(GgufKeys& keys, const char* key) {
  std::vector<double> numbers = keys.numbers(key);
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(keys.num_layers(), 0, 4096));
  if (numbers.empty() && keys.has(key)) numbers.assign(layers, keys.number_or(key, -1.0));
  numbers.resize(std::min(numbers.size(), layers));
  return numbers.empty() ? Json(nullptr) : Json(numbers);
}

// Half of the dimensions rotate in layers of full attention, which have a number of heads of their
// own.
void read_step35(GgufKeys& keys) {
  constexpr const char* kHeads = "attention.head_count";
  constexpr const char* kKvHeads = "attention.head_count_kv";
  Json& config = keys.config;
  read_experts(keys, "n_routed_experts", "moe_intermediate_size");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy("share_expert_dim", "expert_shared_feed_forward_length");
  keys.copy_or("norm_expert_weight", "expert_weights_norm", false);
  keys.require("expert_gating_func", kSigmoid);
  keys.require("moe_every_n_layers", 1);
  config["moe_router_scaling_factor"] =
      scales_weights(keys) ? keys.value("expert_weights_scale") : Json(1.0);
  config["num_nextn_predict_layers"] = keys.num_predicting();
  config["mlp_layer_types"] = mlp_words(keys);
  config["swiglu_limits"] = numbers_of_layers(keys, "swiglu_clamp_exp");
  keys.set_origin("swiglu_limits", "swiglu_clamp_exp");
  config["swiglu_limits_shared"] = numbers_of_layers(keys, "swiglu_clamp_shexp");
  keys.set_origin("swiglu_limits_shared", "swiglu_clamp_shexp");
  read_head_dim(keys);
  keys.copy_or("sliding_window", "attention.sliding_window", 0);
  const std::vector<bool> slides = sliding_layers(keys, {});
  config["layer_types"] = layer_words(slides);
  const auto of_kinds = [&](const char* key) {
    const Json full = number_of_kind(keys, key, slides, false);
    const Json sliding = number_of_kind(keys, key, slides, true);
    return std::pair(full.is_null() ? sliding : full, sliding.is_null() ? full : sliding);
  };
  const auto heads = of_kinds(kHeads), kv_heads = of_kinds(kKvHeads);
  config["num_attention_heads"] = heads.first;
  config["num_sliding_attention_heads"] = heads.second;
  keys.set_origin("num_sliding_attention_heads", kHeads);
  config["num_key_value_heads"] = kv_heads.first;
  if (kv_heads.first != kv_heads.second) {
    keys.complain(kKvHeads, fmt::format("expected as many in all layers, found {} in layers of "
                                        "full attention and {} in others",
                                        kv_heads.first.dump(), kv_heads.second.dump()));
  }
  read_kind_rotations(keys, {.full_share = 0.5, .scales = false});
}

// Latent attention. Older converters do not give the sizes of the expanded heads apart.
void read_latent(GgufKeys& keys) {
  read_grouped_experts(keys);
  Json& config = keys.config;
  config["num_key_value_heads"] = keys.value("attention.head_count");
  config.erase("head_dim");
  config["attention_bias"] = keys.some_layer_has("attn_kv_a_mqa.bias");
  keys.copy("q_lora_rank", "attention.q_lora_rank");
  keys.copy("kv_lora_rank", "attention.kv_lora_rank");
  keys.copy("qk_rope_head_dim", "rope.dimension_count");
  const int64_t rope = keys.integer_or("rope.dimension_count", 0);
  const int64_t key =
      keys.integer_or("attention.key_length_mla", keys.integer_or("attention.key_length", 0));
  config["qk_nope_head_dim"] = key - rope;
  keys.set_origin("qk_nope_head_dim", "attention.key_length_mla");
  keys.set_origin("v_head_dim", "attention.value_length_mla");
  config["v_head_dim"] =
      keys.integer_or("attention.value_length_mla", keys.integer_or("attention.value_length", 0));
  if (!config.contains("rope_scaling")) return;
  // The converter writes 0.1 · mscale_all_dim and not mscale; both are equal in all published
  // models.
  const double weight = keys.number_or("rope.scaling.yarn_log_multiplier", 0.0) / 0.1;
  if (weight <= 0.0) return;
  const double rounded = std::round(weight * 1e5) / 1e5;  // of a float32
  config["rope_scaling"]["mscale"] = config["rope_scaling"]["mscale_all_dim"] = rounded;
}

// Queries are scaled by position only if the file says by how much, as in llama.cpp.
void read_mistral4(GgufKeys& keys) {
  read_latent(keys);
  constexpr std::string_view kLength = "attention.temperature_length";
  Json& scaling = keys.config["rope_scaling"];
  if (scaling.is_null()) scaling = {{"rope_type", "default"}};
  scaling["llama_4_scaling_beta"] = 0.0;
  if (!keys.has("attention.temperature_scale")) return;
  scaling["llama_4_scaling_beta"] = keys.value("attention.temperature_scale");
  keys.set_origin("rope_scaling.llama_4_scaling_beta", "attention.temperature_scale");
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (!keys.has(kLength) || scaling.value(kOriginal, Json()) == keys.value(kLength)) return;
  // Another length than that of the rotation: its reader refuses the key.
  scaling["temperature_length"] = keys.value(kLength);
  keys.set_origin("rope_scaling.temperature_length", kLength);
}

// DeepSeek-V2 has no gating function in older files, and no bias of the choice; its weights are
// never divided by their sum. Mistral's larger models have the same architecture, and do that.
void read_deepseek2(GgufKeys& keys) {
  read_latent(keys);
  const int64_t gating = keys.integer_or("expert_gating_func", 0);
  if (gating == kSigmoid || (gating == 0 && keys.some_layer_has("exp_probs_b.bias"))) return;
  Json& config = keys.config;
  if (keys.value("expert_weights_norm") == true) {
    read_mistral4(keys);
    config["architectures"] = {"Mistral4ForCausalLM"};
    config["model_type"] = "mistral4";
    return;
  }
  config["architectures"] = {"DeepseekV2ForCausalLM"};
  config["model_type"] = "deepseek_v2";
  config["scoring_func"] = "softmax";
  config["topk_method"] = config["n_group"] == 1 ? "greedy" : "group_limited_greedy";
}

// Layers with heads of keys are those of latent attention. The chosen weights are always divided by
// their sum.
void read_kimi_linear(GgufKeys& keys) {
  read_latent(keys);
  keys.rename("n_routed_experts", "num_experts");
  Json& config = keys.config;
  config["norm_topk_prob"] = true;
  config["linear_num_heads"] = keys.value("attention.head_count");
  keys.copy("linear_head_dim", "kda.head_dim");
  keys.copy("linear_conv_kernel_dim", "ssm.conv_kernel");
  Json types = Json::array();
  std::vector<int64_t> heads = keys.integers("attention.head_count_kv");
  heads.resize(
      std::min(heads.size(), static_cast<size_t>(std::max<int64_t>(0, keys.num_layers()))));
  for (const int64_t each : heads) {
    types.push_back(each == 0 ? "linear_attention" : "full_attention");
  }
  config["layer_types"] = types;
}

// Kimi-Linear's layers with one projection for decays and gates, and bounded decays. Heads of keys
// are those of latent attention.
void read_bailingmoe3(GgufKeys& keys) {
  read_kimi_linear(keys);
  Json& config = keys.config;
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.copy("moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length");
  keys.require("expert_gating_func", kSigmoid);
  keys.require("kda.safe_gate", true);
  keys.copy_or("kda_lower_bound", "kda.gate_lower_bound", "missing");
  for (const char* limits : {"swiglu_clamp_exp", "swiglu_clamp_shexp"}) {
    const std::vector<double> list = keys.numbers(limits);
    if (list.empty()) keys.require(limits, 0.0);
    const auto limit = std::ranges::find_if(list, [](double each) { return each != 0.0; });
    if (limit == list.end()) continue;
    keys.complain(limits, fmt::format("expected 0 for every layer, found {} for layer {}; wideep "
                                      "computes no limits in this architecture",
                                      *limit, limit - list.begin()));
  }
  config["kda_safe_gate"] = true;
}

void read_indexer(GgufKeys& keys) {
  read_latent(keys);
  keys.copy("index_n_heads", "attention.indexer.head_count");
  keys.copy("index_head_dim", "attention.indexer.key_length");
  keys.copy("index_topk", "attention.indexer.top_k");
}

// One number, or one for each layer, which must all be the same.
double limit_of_all(GgufKeys& keys, const char* key) {
  std::vector<double> limits = keys.numbers(key);
  if (limits.empty()) limits.push_back(keys.number_or(key, 0.0));
  for (const double each : limits) {
    if (each == limits.front()) continue;
    keys.complain(key, fmt::format("expected the same number for every layer, found {} and {}",
                                   limits.front(), each));
  }
  return limits.front();
}

// llama.cpp needs all of these keys. The layer that predicts is in a file of its own.
void read_deepseek4(GgufKeys& keys) {
  constexpr int64_t kSqrtSoftplus = 4;
  read_experts(keys, "n_routed_experts", "moe_intermediate_size");
  keys.require("expert_gating_func", kSqrtSoftplus);
  keys.require("expert_weights_norm", true);
  for (const auto& [key, from] : {std::pair("n_shared_experts", "expert_shared_count"),
                                  {"routed_scaling_factor", "expert_weights_scale"},
                                  {"num_hash_layers", "hash_layer_count"},
                                  {"q_lora_rank", "attention.q_lora_rank"},
                                  {"qk_rope_head_dim", "rope.dimension_count"},
                                  {"sliding_window", "attention.sliding_window"},
                                  {"o_groups", "attention.output_group_count"},
                                  {"o_lora_rank", "attention.output_lora_rank"},
                                  {"compress_rope_theta", "attention.compress_rope_freq_base"},
                                  {"index_n_heads", "attention.indexer.head_count"},
                                  {"index_head_dim", "attention.indexer.key_length"},
                                  {"index_topk", "attention.indexer.top_k"},
                                  {"hc_mult", "hyper_connection.count"},
                                  {"hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations"},
                                  {"hc_eps", "hyper_connection.epsilon"}}) {
    keys.copy_or(key, from, "missing");
  }
  const double limit = limit_of_all(keys, "swiglu_clamp_exp");
  keys.config["swiglu_limit"] = limit;
  keys.set_origin("swiglu_limit", "swiglu_clamp_exp");
  if (keys.has("swiglu_clamp_shexp") && limit_of_all(keys, "swiglu_clamp_shexp") != limit) {
    keys.complain("swiglu_clamp_shexp", fmt::format("expected {}, as of other experts", limit));
  }
  keys.config["compress_ratios"] = keys.integers("attention.compress_ratios");
  keys.set_origin("compress_ratios", "attention.compress_ratios");
  keys.config["num_nextn_predict_layers"] = 0;
  keys.has("embedding_length_out");
}

// Without a list: layers that have an indexer's tensors.
void read_indexer_types(GgufKeys& keys) {
  read_indexer(keys);
  const std::vector<int64_t> listed = keys.integers("attention.indexer.types");
  Json types = Json::array();
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    const auto index = static_cast<size_t>(layer);
    const bool is_full = index < listed.size()
                             ? listed[index] != 0
                             : keys.has_tensor(fmt::format("blk.{}.indexer.attn_k.weight", layer));
    types.push_back(is_full ? "full" : "shared");
  }
  keys.config["indexer_types"] = types;
}

void read_glm_dsa(GgufKeys& keys) {
  read_indexer(keys);
  read_indexer_types(keys);
}

// A number that all layers have.
void read_common_limit(GgufKeys& keys, const char* key, std::string_view from) {
  const std::vector<double> list = keys.numbers(from);
  keys.copy_or(key, from, "missing");
  if (list.empty()) return;
  keys.config[key] = list.front();
  const auto other = std::ranges::find_if(list, [&](double each) { return each != list.front(); });
  if (other == list.end()) return;
  keys.complain(from, fmt::format("expected {} for every layer, found {} for layer {}",
                                  list.front(), *other, other - list.begin()));
}

// Layers with heads of keys are those of latent attention. Activations of dense layers and of
// shared experts have the limit of the others.
void read_glm5_next(GgufKeys& keys) {
  read_kimi_linear(keys);
  keys.rename("num_experts", "n_routed_experts");
  keys.copy_or("norm_topk_prob", "expert_weights_norm", false);
  keys.require("expert_gating_func", kSigmoid);
  keys.copy_or("linear_lower_bound", "kda.gate_lower_bound", nullptr);
  keys.copy("index_n_heads", "attention.indexer.head_count");
  keys.copy("index_head_dim", "attention.indexer.key_length");
  keys.copy("index_topk", "attention.indexer.top_k");
  keys.copy_or("index_kpool", "attention.indexer.kpool", "missing");
  keys.copy_or("index_kpool_always_select_tail", "attention.indexer.kpool_select_tail", false);
  read_indexer_types(keys);
  keys.copy_or("hc_mult", "hyper_connection.count", "missing");
  keys.copy_or("hc_sinkhorn_iters", "hyper_connection.sinkhorn_iterations", "missing");
  keys.copy_or("hc_eps", "hyper_connection.epsilon", "missing");
  keys.has("attention.layer_norm_epsilon");  // of the indexer's keys, in no file another
  read_common_limit(keys, "swiglu_limit", "swiglu_clamp_exp");
  const std::vector<double> shared = keys.numbers("swiglu_clamp_shexp");
  if (!shared.empty() && shared != keys.numbers("swiglu_clamp_exp")) {
    keys.complain("swiglu_clamp_shexp", "expected the numbers of swiglu_clamp_exp, found others");
  }
}

void read_ernie(GgufKeys& keys) {
  read_experts(keys, "moe_num_experts", "moe_intermediate_size");
  Json& config = keys.config;
  keys.rename("num_experts_per_tok", "moe_k");
  config.erase("attention_bias");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy_or("moe_layer_interval", "interleave_moe_layer_step", 1);
  config["moe_layer_start_index"] = num_leading_dense(keys);
  config["moe_use_aux_free"] = keys.some_layer_has("exp_probs_b.bias");
  // expert_shared_feed_forward_length is not the width of the tensors.
  keys.has("expert_shared_feed_forward_length");
  keys.copy_or("moe_num_shared_experts", "expert_shared_count", 0);
}

void read_hunyuan(GgufKeys& keys) {
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.rename("num_experts_per_tok", "moe_topk");
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy_or("num_shared_expert", "expert_shared_count", 1);
  keys.has("expert_shared_feed_forward_length");
  for (const char* known : {"rope.scaling.factor", "rope.scaling.original_context_length"}) {
    keys.has(known);
  }
}

void read_minimax(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  Json& config = keys.config;
  config.erase("attention_bias");
  keys.copy("rotary_dim", "rope.dimension_count");
  config["scoring_func"] = keys.integer_or("expert_gating_func", kSigmoid) == kSigmoid
                               ? "sigmoid"
                               : "another than sigmoid";
  config["use_mtp"] = false;
}

// The layers with experts have an indexer. The tensors have the width of the shared expert, and
// llama.cpp computes the published activation for all files.
void read_minimax_m3(GgufKeys& keys) {
  read_minimax(keys);
  Json& config = keys.config;
  config.erase("use_mtp");
  keys.require("expert_weights_norm", true);
  keys.copy("dense_intermediate_size", "feed_forward_length");
  keys.copy_or("routed_scaling_factor", "expert_weights_scale", 1.0);
  config["n_shared_experts"] = keys.integer_or("expert_shared_count", 1);
  keys.set_origin("n_shared_experts", "expert_shared_count");
  keys.copy("shared_intermediate_size", "expert_feed_forward_length");
  const std::string shared = fmt::format("blk.{}.ffn_up_shexp.weight", num_leading_dense(keys));
  if (const auto* up = keys.tensor(shared)) {
    config["shared_intermediate_size"] = up->shape.front();
    keys.set_origin_tensor("shared_intermediate_size", shared);
  }
  keys.copy("index_n_heads", "attention.indexer.head_count");
  keys.copy("index_head_dim", "attention.indexer.key_length");
  keys.copy("index_topk_blocks", "attention.indexer.top_k");
  keys.copy("index_block_size", "attention.indexer.block_size");
  keys.copy("index_local_blocks", "attention.indexer.local_blocks");
  Json mixers = Json::array(), mlps = Json::array();
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    mixers.push_back(is_moe(keys, layer) ? "minimax_m3_sparse" : "full_attention");
    mlps.push_back(is_moe(keys, layer) ? "sparse" : "dense");
  }
  config["layer_types"] = mixers;
  config["mlp_layer_types"] = mlps;
  keys.has("leading_dense_block_count");
}

// llama.cpp's constants: chunks and the floor of the temperature are 8192 positions, every fourth
// layer attends to all of them. The model with 128 experts has no norms.
void read_llama4(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  keys.copy("intermediate_size_mlp", "feed_forward_length");
  keys.copy_or("interleave_moe_layer_step", "interleave_moe_layer_step", 1);
  Json& config = keys.config;
  config["moe_layers"] = layers_of(keys, true);
  config["use_qk_norm"] = keys.integer_or("expert_count", 0) != 128;
  const bool has_chunks = keys.integer_or("attention.sliding_window", 8192) != 0;
  config["no_rope_layer_interval"] = has_chunks ? int64_t{4} : keys.num_layers() + 1;
  config["attention_chunk_size"] = has_chunks ? Json(8192) : Json(nullptr);
  config["attn_temperature_tuning"] = has_chunks;
}

// ---- without experts ----

// A share of rotated dimensions is refused by the reader of config.json.
void read_dense(GgufKeys& keys) {
  keys.copy("intermediate_size", "feed_forward_length");
  constexpr const char* kShare = "partial_rotary_factor";
  read_partial_rotary(keys);
  keys.set_origin(kShare, "rope.dimension_count");
  if (keys.config.value(kShare, 1.0) == 1.0) keys.config.erase(kShare);
}

// Mistral's files have this architecture, too; they do not say their windows.
void read_llama(GgufKeys& keys) {
  read_dense(keys);
  keys.config["mlp_bias"] = keys.some_layer_has("ffn_gate.bias");
}

void read_qwen2(GgufKeys& keys) {
  read_dense(keys);
  keys.config.erase("attention_bias");  // always there
}

// Files do not hold the norm of the chosen weights: llama.cpp divides by their sum.
void read_dbrx(GgufKeys& keys) {
  Json& config = keys.config;
  for (const char* unknown : {"attention_bias", "rms_norm_eps", "head_dim"}) config.erase(unknown);
  keys.require("attention.layer_norm_epsilon", 1e-5);
  read_experts(keys, "num_experts", "ffn_hidden_size");
  config["ffn_config"] = {{"moe_num_experts", config["num_experts"]},
                          {"moe_top_k", config["num_experts_per_tok"]},
                          {"ffn_hidden_size", config["ffn_hidden_size"]}};
  for (const char* moved : {"num_experts", "num_experts_per_tok", "ffn_hidden_size"}) {
    config.erase(moved);
  }
  keys.set_origin("ffn_config.moe_num_experts", "expert_count");
  keys.set_origin("ffn_config.moe_top_k", "expert_used_count");
  keys.set_origin("ffn_config.ffn_hidden_size", "feed_forward_length");
  config["attn_config"] = {{"kv_n_heads", config["num_key_value_heads"]},
                           {"clip_qkv", keys.value("attention.clamp_kqv")}};
  keys.set_origin("attn_config.kv_n_heads", "attention.head_count_kv");
  keys.set_origin("attn_config.clip_qkv", "attention.clamp_kqv");
}

Json floats_of(const GgufKeys& keys, const char* name) {
  const tensor_files::GgufTensor* tensor = keys.tensor(name);
  if (tensor == nullptr || tensor->type != tensor_files::BlockType::kF32) return nullptr;
  std::vector<float> values(static_cast<size_t>(tensor->num_elements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// Files do not hold how near logits must be to each other; SparseMixer's own share is taken.
void read_phimoe(GgufKeys& keys) {
  read_experts(keys, "num_local_experts", "intermediate_size");
  keys.config["lm_head_bias"] = keys.has_tensor("output.bias");
  const int64_t window = keys.integer_or("attention.sliding_window", 0);
  if (window > 0) keys.config["sliding_window"] = window;
  if (!keys.has_tensor("rope_factors_long.weight")) return;
  const double scale = keys.number_or("rope.scaling.attn_factor", 1.0);
  keys.config["rope_scaling"] = {{"rope_type", "longrope"},
                                 {"short_factor", floats_of(keys, "rope_factors_short.weight")},
                                 {"long_factor", floats_of(keys, "rope_factors_long.weight")},
                                 {"short_mscale", scale},
                                 {"long_mscale", scale}};
  keys.config["rope_scaling"]["original_max_position_embeddings"] =
      keys.value("rope.scaling.original_context_length");
  keys.set_origin("rope_scaling.original_max_position_embeddings",
                  "rope.scaling.original_context_length");
}

// ---- Gemma 4, with experts and without ----

// The share of pairs that rotate in layers of full attention: the file has 1 for them, and a divisor
// by which nothing is left of a frequency for the others, which come last. −1: other divisors.
double rotating_share(const GgufKeys& keys) {
  const tensor_files::GgufTensor* tensor = keys.tensor("rope_freqs.weight");
  if (tensor == nullptr) return 1.0;
  if (tensor->type != tensor_files::BlockType::kF32 || tensor->num_elements() == 0) return -1.0;
  std::vector<float> divisors(static_cast<size_t>(tensor->num_elements()));
  std::memcpy(divisors.data(), tensor->bytes.data(), tensor->bytes.size());
  const auto still = std::ranges::find_if(divisors, [](float each) { return each != 1.0f; });
  if (!std::all_of(still, divisors.end(), [](float each) { return each >= 1e20f; })) return -1.0;
  return static_cast<double>(still - divisors.begin()) / static_cast<double>(divisors.size());
}

Json gemma4_rotations(GgufKeys& keys) {
  Json full = {{"rope_type", "proportional"},
               {"rope_theta", keys.number_or("rope.freq_base", 1e6)},
               {"partial_rotary_factor", rotating_share(keys)}};
  Json sliding = {{"rope_type", "default"},
                  {"rope_theta", keys.number_or("rope.freq_base_swa", 1e4)}};
  const double dim = keys.number_or("attention.key_length_swa", 1.0);
  const double rotated = keys.number_or("rope.dimension_count_swa", dim);
  if (rotated != dim) sliding["partial_rotary_factor"] = rotated / std::max(dim, 1.0);
  if (keys.config.contains("rope_scaling")) {  // llama.cpp would scale both
    full["rope_type"] = fmt::format("proportional with scaling {}",
                                    keys.config["rope_scaling"]["rope_type"].get<std::string>());
  }
  keys.config.erase("rope_scaling");
  keys.config.erase("rope_theta");
  return {{"full_attention", full}, {"sliding_attention", sliding}};
}

// Layers of full attention have other heads; without v_proj, their values are keys.
void read_gemma4_layers(GgufKeys& keys) {
  const std::vector<int64_t> slides = keys.integers("attention.sliding_window_pattern");
  const std::vector<int64_t> heads = keys.integers("attention.head_count_kv");
  const int64_t same = keys.integer_or("attention.head_count_kv", 0);
  Json types = Json::array(), layers = Json::object();
  Json usual = same;
  bool has_values = true;
  for (int64_t layer = 0; layer < std::min<int64_t>(keys.num_layers(), 4096); ++layer) {
    const auto index = static_cast<size_t>(layer);
    const bool is_full = index < slides.size() ? slides[index] == 0 : (layer + 1) % 6 == 0;
    const int64_t own = index < heads.size() ? heads[index] : same;
    types.push_back(is_full ? "full_attention" : "sliding_attention");
    if (!is_full) {
      usual = own;
      continue;
    }
    layers[fmt::format("{}", layer)] = {{"head_dim", keys.value("attention.key_length")},
                                        {"num_key_value_heads", own}};
    has_values = keys.has_tensor(fmt::format("blk.{}.attn_v.weight", layer));
  }
  Json& config = keys.config;
  config["layer_types"] = types;
  config["per_layer_config"] = layers;
  config["num_key_value_heads"] = usual;
  config["attention_k_eq_v"] = !has_values;
}

void read_gemma4(GgufKeys& keys) {
  keys.copy("intermediate_size", "feed_forward_length");
  keys.copy("head_dim", "attention.key_length_swa");
  keys.has("attention.value_length_swa");
  keys.copy("sliding_window", "attention.sliding_window");
  keys.copy("final_logit_softcapping", "final_logit_softcapping");
  keys.copy_or("hidden_size_per_layer_input", "embedding_length_per_layer_input", 0);
  keys.copy_or("num_kv_shared_layers", "attention.shared_kv_layers", 0);
  keys.config["rope_parameters"] = gemma4_rotations(keys);
  read_gemma4_layers(keys);
  if (keys.integer_or("expert_count", 0) == 0) return;
  keys.config["enable_moe_block"] = true;
  read_experts(keys, "num_experts", "moe_intermediate_size");
  keys.rename("num_experts_per_tok", "top_k_experts");
}

struct Architecture {
  std::string_view name;
  std::string_view class_name;
  std::string_view model_type;
  void (*read)(GgufKeys& keys);
  bool moves_rotated_rows = false;
  bool reads_divisors = false;  // rope_freqs.weight, into config.json
};

constexpr std::array kArchitectures = {
    Architecture{"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", read_qwen3moe},
    Architecture{"qwen2moe", "Qwen2MoeForCausalLM", "qwen2_moe", read_qwen2moe},
    Architecture{"qwen3next", "Qwen3NextForCausalLM", "qwen3_next", read_qwen3next},
    Architecture{"qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", read_qwen35moe},
    Architecture{"deepseek2", "DeepseekV3ForCausalLM", "deepseek_v3", read_deepseek2},
    Architecture{"deepseek32", "DeepseekV32ForCausalLM", "deepseek_v32", read_indexer},
    Architecture{"deepseek4", "DeepseekV4ForCausalLM", "deepseek_v4", read_deepseek4},
    Architecture{"mistral4", "Mistral4ForCausalLM", "mistral4", read_mistral4},
    Architecture{"kimi-linear", "KimiLinearForCausalLM", "kimi_linear", read_kimi_linear},
    Architecture{"bailingmoe3", "BailingMoeV3ForCausalLM", "bailing_hybrid", read_bailingmoe3},
    Architecture{"gpt-oss", "GptOssForCausalLM", "gpt_oss", read_gpt_oss},
    Architecture{"glm4moe", "Glm4MoeForCausalLM", "glm4_moe", read_glm4moe},
    Architecture{"glm-dsa", "GlmMoeDsaForCausalLM", "glm_moe_dsa", read_glm_dsa},
    Architecture{"glm5-next", "Glm5NextForConditionalGeneration", "glm5_next", read_glm5_next},
    Architecture{"dots1", "Dots1ForCausalLM", "dots1", read_dots1},
    Architecture{"exaone-moe", "ExaoneMoeForCausalLM", "exaone_moe", read_exaone_moe},
    Architecture{"hy_v3", "HYV3ForCausalLM", "hy_v3", read_hy_v3},
    Architecture{"afmoe", "AfmoeForCausalLM", "afmoe", read_afmoe},
    Architecture{"cohere2moe", "Cohere2MoeForCausalLM", "cohere2_moe", read_cohere2moe},
    Architecture{"laguna", "LagunaForCausalLM", "laguna", read_laguna},
    Architecture{"mellum", "MellumForCausalLM", "mellum", read_mellum},
    Architecture{"step35", "Step3p5ForCausalLM", "step3p5", read_step35},
    Architecture{"mimo2", "MiMoV2FlashForCausalLM", "mimo_v2_flash", read_mimo2},
    Architecture{"minimax-m2", "MiniMaxM2ForCausalLM", "minimax_m2", read_minimax},
    Architecture{"minimax-m3", "MiniMaxM3VLForCausalLM", "minimax_m3_vl_text", read_minimax_m3},
    Architecture{"gemma4", "Gemma4ForCausalLM", "gemma4_text", read_gemma4, false, true},
    Architecture{"llama4", "Llama4ForCausalLM", "llama4_text", read_llama4},
    Architecture{"llama", "MixtralForCausalLM", "mixtral", read_mixtral, true},
    Architecture{"olmoe", "OlmoeForCausalLM", "olmoe", read_olmoe},
    Architecture{"granitemoe", "GraniteMoeForCausalLM", "granitemoe", read_granitemoe, true},
    Architecture{"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
                 read_granitehybrid, true},
    Architecture{"nemotron_h_moe", "NemotronHForCausalLM", "nemotron_h", read_nemotron_h_moe, true},
    Architecture{"phimoe", "PhimoeForCausalLM", "phimoe", read_phimoe},
    Architecture{"dbrx", "DbrxForCausalLM", "dbrx", read_dbrx},
    Architecture{"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe", read_ernie},
    Architecture{"hunyuan-moe", "HunYuanMoEV1ForCausalLM", "hunyuan_v1_moe", read_hunyuan},
    Architecture{"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe", read_lfm2moe},
};
constexpr std::array kDenseArchitectures = {
    Architecture{"gemma4", "Gemma4ForCausalLM", "gemma4_text", read_gemma4, false, true},
    Architecture{"llama", "LlamaForCausalLM", "llama", read_llama, true},
    Architecture{"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid",
                 read_granitehybrid, true},
    Architecture{"nemotron_h", "NemotronHForCausalLM", "nemotron_h", read_nemotron_h, true},
    Architecture{"qwen2", "Qwen2ForCausalLM", "qwen2", read_qwen2},
    Architecture{"qwen3", "Qwen3ForCausalLM", "qwen3", read_dense},
};

const Architecture* find(std::span<const Architecture> architectures, std::string_view name) {
  const auto known = std::ranges::find(architectures, name, &Architecture::name);
  return known == architectures.end() ? nullptr : &*known;
}

bool has_experts(const tensor_files::GgufFile& file, std::string_view architecture) {
  const tensor_files::GgufValue* count = file.find(fmt::format("{}.expert_count", architecture));
  return count != nullptr && !(count->integer() && *count->integer() == 0);
}

// One name may stand for two families, one of them dense (llama).
Result<const Architecture*> find_architecture(const tensor_files::GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  const tensor_files::GgufValue* found = file.find(kKey);
  const std::string name(found == nullptr || found->is_list() ? "" : found->text().value_or(""));
  const Architecture* sparse = find(kArchitectures, name);
  const Architecture* dense = find(kDenseArchitectures, name);
  if (sparse == nullptr && dense == nullptr) {
    return invalid_input(fmt::format("{}: {}: {} is not supported; supported: {}", file.path(),
                                     kKey, name.empty() ? "missing" : base::printable(name),
                                     gguf_architectures()));
  }
  const bool experts = has_experts(file, name);
  if (experts && sparse != nullptr) return sparse;
  if (!experts && dense != nullptr && !file.tensors().contains("blk.0.ffn_gate_inp.weight")) {
    return dense;
  }
  return invalid_input(
      experts ? fmt::format("{}: {}.expert_count: expected none or 0 (the models of this "
                            "architecture have no experts), found some",
                            file.path(), name)
              : fmt::format("{}: {}.expert_count: missing or 0: expected the number of experts, "
                            "which the models of this architecture{} have",
                            file.path(), name, dense != nullptr ? " with a router" : ""));
}

// ---- divisors of frequencies ----

// rope_freqs.weight: of Llama 3's rotary scaling, or any others.
Result<std::vector<float>> read_divisors(const tensor_files::GgufTensor& tensor,
                                         const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    return invalid_input(fmt::format("{}: tensor 'rope_freqs.weight': {}", path, what));
  };
  if (tensor.type != tensor_files::BlockType::kF32 || tensor.shape.size() != 1) {
    return refuse(fmt::format("expected a list of F32, found {} of {}",
                              tensor_files::describe(tensor.shape),
                              tensor_files::block_type_name(tensor.type)));
  }
  std::vector<float> divisors(static_cast<size_t>(tensor.num_elements()));
  std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (divisors[i] > 0.0f && std::isfinite(divisors[i])) continue;
    return refuse(
        fmt::format("expected positive numbers, by which frequencies are divided, found "
                    "{} at {}",
                    divisors[i], i));
  }
  return divisors;
}

// Sets them. REQUIRES: config was read.
Status set_divisors(const std::vector<float>& divisors, const std::string& path,
                    ModelConfig* config) {
  if (divisors.empty()) return {};
  const int dim = config->is_mla() ? config->qk_rope_head_dim : config->grouped_query.rotary_dim;
  const auto pairs = static_cast<size_t>(dim / 2);
  // Step-3.7's have ones behind those of layers of full attention, of which fewer pairs rotate.
  const bool fits = divisors.size() >= pairs &&
                    std::all_of(divisors.begin() + static_cast<std::ptrdiff_t>(pairs),
                                divisors.end(), [](float each) { return each == 1.0f; });
  if (!fits) {
    return invalid_input(
        fmt::format("{}: tensor 'rope_freqs.weight': expected a number for each of the {} pairs of "
                    "rotated dimensions, found {}",
                    path, pairs, divisors.size()));
  }
  config->rope.divisors.assign(divisors.begin(),
                               divisors.begin() + static_cast<std::ptrdiff_t>(pairs));
  return {};
}

// ---- errors ----

// "m.gguf: num_attention_heads: …" becomes "m.gguf: num_attention_heads (llama.attention.
// head_count): …".
Status with_key_of_file(const Status& status, const std::string& path,
                        const std::map<std::string, std::string>& origins) {
  const std::string& message = status.message();
  const std::string begin = path + ": ";
  if (!message.starts_with(begin)) return status;
  const size_t end = std::min(message.find(':', begin.size()), message.size());
  const auto origin = origins.find(message.substr(begin.size(), end - begin.size()));
  if (origin == origins.end()) return status;
  return {status.code(),
          fmt::format("{} ({}){}", message.substr(0, end), origin->second, message.substr(end))};
}

// ---- tokens ----

void read_tokens(const tensor_files::GgufFile& file, GgufKeys& keys) {
  const auto id_of = [&](const char* key) -> Json {
    const tensor_files::GgufValue* found = file.find(fmt::format("tokenizer.ggml.{}", key));
    return found == nullptr ? Json(nullptr) : to_json(*found);
  };
  if (const Json bos = id_of("bos_token_id"); !bos.is_null()) keys.config["bos_token_id"] = bos;
  // A chat model ends a turn with another token than a text: both end an answer.
  Json ends = Json::array();
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const Json id = id_of(key);
    if (!id.is_null() && std::ranges::find(ends, id) == ends.end()) ends.push_back(id);
  }
  if (!ends.empty()) keys.config["eos_token_id"] = ends;
}

}  // namespace

std::string gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& each : kArchitectures) names.push_back(each.name);
  for (const Architecture& each : kDenseArchitectures) {
    if (find(kArchitectures, each.name) == nullptr) names.push_back(each.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<GgufConfig> gguf_config(const tensor_files::GgufFiles& files) {
  const tensor_files::GgufFile& file = files.first();
  WIDEEP_TRY_ASSIGN(const Architecture* architecture, find_architecture(file));
  GgufKeys keys(files, std::string(architecture->name));
  keys.has("expert_count");
  keys.config["architectures"] = {std::string(architecture->class_name)};
  keys.config["model_type"] = architecture->model_type;
  read_common(keys);
  architecture->read(keys);
  constexpr std::array kScales = {"routed_scaling_factor", "route_scale",
                                  "moe_routed_scaling_factor", "moe_router_scaling_factor"};
  const auto reads = [&](const char* key) { return keys.config.contains(key); };
  if (scales_weights(keys) && std::ranges::none_of(kScales, reads)) {
    return invalid_input(
        fmt::format("{}: {}.expert_weights_scale: expected 1 or none (the models of "
                    "this architecture do not scale), found {}",
                    file.path(), architecture->name, keys.number_or("expert_weights_scale", 1.0)));
  }
  if (!keys.complaint().empty()) {
    return invalid_input(fmt::format("{}: {}", file.path(), keys.complaint()));
  }
  read_tokens(file, keys);
  GgufConfig result;
  const tensor_files::GgufTensor* divisors = keys.tensor("rope_freqs.weight");
  if (divisors != nullptr && !architecture->reads_divisors) {
    WIDEEP_TRY_ASSIGN(result.divisors, read_divisors(*divisors, file.path()));
  }
  result.architecture = architecture->name;
  result.json = formats::json_text(keys.config, 2) + "\n";
  result.moves_rotated_rows = architecture->moves_rotated_rows;
  result.origins = keys.origins();
  if (const std::vector<std::string> unasked = keys.unasked(); !unasked.empty()) {
    result.notes.push_back(
        fmt::format("{}: keys that wideep does not read: {}", file.path(),
                    base::printable(fmt::format("{}", fmt::join(unasked, ", ")), 300)));
  }
  return result;
}

Result<ModelConfig> read_gguf_config(const tensor_files::GgufFiles& files) {
  WIDEEP_TRY_ASSIGN(const GgufConfig found, gguf_config(files));
  const std::string& path = files.first().path();
  auto parsed = parse_model_config(found.json, path);
  if (!parsed.ok()) return with_key_of_file(parsed.status(), path, found.origins);
  ModelConfig config = std::move(*parsed);
  WIDEEP_TRY(set_divisors(found.divisors, path, &config));
  config.notes.insert(config.notes.end(), found.notes.begin(), found.notes.end());
  return config;
}

}  // namespace wideep::model
