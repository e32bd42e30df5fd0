// SPDX-License-Identifier: Apache-2.0
//
// Readers of keys that several families share.
//
// An absent key means what transformers' class of that family assumes, so defaults are arguments,
// and 0 stands for a key that must be there. After an error readers return something in range;
// checks that compare two keys come after readable(), so that they never complain about such a
// value.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {

using formats::JsonObject;

namespace {

// A number of experts. by_default: of an absent key; 0: the key is required.
int positive_or(const JsonObject& root, std::string_view key, int by_default) {
  if (by_default > 0 && !root.has(key)) return by_default;
  return positive(root, key, kMaxExperts);
}

}  // namespace

bool is_null(const JsonObject& root, std::string_view key) {
  const auto found = root.raw().find(std::string(key));
  return found != root.raw().end() && found->is_null();
}

bool flag_or_null(const JsonObject& root, std::string_view key, bool by_default) {
  return root.boolean_or(key, by_default && !is_null(root, key));
}

void expect_equal(const JsonObject& root, std::string_view key, std::string_view source,
                  int64_t expected) {
  const int64_t found = root.integer_or(key, expected);
  if (found == expected) return;
  root.complain(key, fmt::format("expected {} {}, found {}", source, expected, found));
}

int read_either(const JsonObject& root, std::array<std::string_view, 2> keys, int by_default,
                int64_t max) {
  const formats::IntegerRange range = {.min = 1, .max = max};
  const int64_t other = root.integer_or(keys[1], by_default, range);
  const int64_t size = root.integer_or(keys[0], other, range);
  expect_equal(root, keys[1], keys[0], size);
  return static_cast<int>(size);
}

void read_grouped_query(const JsonObject& root, ModelConfig* config, const HeadDefaults& defaults) {
  constexpr std::string_view kKvHeads = "num_key_value_heads";
  const auto by_default = [&](std::string_view key, int family, int derived) {
    return family == 0 || is_null(root, key) ? derived : family;
  };
  config->num_kv_heads = static_cast<int>(
      root.integer_or(kKvHeads, by_default(kKvHeads, defaults.kv_heads, config->num_heads),
                      {.min = 1, .max = kMaxHeads}));
  const int derived = std::max(1, config->hidden_size / std::max(1, config->num_heads));
  config->head_dim = static_cast<int>(
      root.integer_or("head_dim", by_default("head_dim", defaults.head_dim, derived),
                      {.min = 1, .max = kMaxHeadDim}));
  config->grouped_query.rotary_dim = config->head_dim;
  config->grouped_query.scale =
      static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim)));
  if (!readable(root)) return;
  check_even(root, "head_dim", config->head_dim);
  if (config->num_heads % config->num_kv_heads != 0) {
    root.complain("num_key_value_heads",
                  fmt::format("expected a divisor of num_attention_heads {}, found {}",
                              config->num_heads, config->num_kv_heads));
  }
}

void read_attention_bias(const JsonObject& root, bool by_default, bool output,
                         ModelConfig* config) {
  config->grouped_query.qkv_bias = root.boolean_or("attention_bias", by_default);
  config->grouped_query.output_bias = output && config->grouped_query.qkv_bias;
}

int rotated_dimensions(const JsonObject& object, double share, int head_dim) {
  // Shares that were made from whole dimensions may be a rounding below them.
  const int dim = static_cast<int>(head_dim * share + 1e-6);
  if (readable(object) && (dim < 2 || dim % 2 != 0)) {
    object.complain("partial_rotary_factor",
                    fmt::format("expected a share that makes an even number of the {} "
                                "dimensions of a head, found {}",
                                head_dim, share));
  }
  return dim;
}

void read_partial_rotary(const JsonObject& root, double by_default, ModelConfig* config) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  constexpr formats::NumberRange kShare = {.min = 1e-3, .max = 1.0};
  double share = by_default;
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    if (root.has(object)) share = root.object(object).number_or(kKey, share, kShare);
  }
  share = root.number_or(kKey, share, kShare);
  config->grouped_query.rotary_dim = rotated_dimensions(root, share, config->head_dim);
}

void require_whole_rotary(const JsonObject& root) {
  constexpr std::string_view kKey = "partial_rotary_factor";
  const double share = root.number_or(kKey, 1.0);
  if (share == 1.0) return;
  root.complain(
      kKey, fmt::format("expected 1, found {}; wideep rotates whole heads in this family", share));
}

int read_num_experts(const JsonObject& root, int64_t min, int by_default) {
  const formats::IntegerRange range = {.min = min, .max = kMaxExperts};
  if (!root.has("num_local_experts")) {
    return static_cast<int>(by_default > 0 ? root.integer_or("num_experts", by_default, range)
                                           : root.integer("num_experts", range));
  }
  const int64_t local = root.integer("num_local_experts", range);
  const int64_t experts = root.integer_or("num_experts", local, range);
  if (experts != local) {
    root.complain("num_experts",
                  fmt::format("expected num_local_experts {}, found {}", local, experts));
  }
  return static_cast<int>(local);
}

void check_top_k(const JsonObject& root, std::string_view key, const RoutingConfig& routing) {
  if (!readable(root) || routing.top_k <= routing.num_experts) return;
  root.complain(key, fmt::format("expected at most the {} experts, found {}", routing.num_experts,
                                 routing.top_k));
}

void read_experts(const JsonObject& root, const ExpertKeys& keys, ModelConfig* config) {
  RoutingConfig& routing = config->routing;
  routing.num_experts = keys.experts == ExpertKeys().experts
                            ? read_num_experts(root, 1, keys.num_experts)
                            : positive_or(root, keys.experts, keys.num_experts);
  routing.top_k = positive_or(root, keys.top_k, keys.num_chosen);
  config->moe_intermediate_size = positive(root, keys.width, kMaxIntermediate);
  check_top_k(root, keys.top_k, routing);
}

// Layer i is a MoE layer if there are experts, i + 1 is a multiple of decoder_sparse_step and
// mlp_only_layers does not contain i. Entries beyond the last layer have no effect.
void read_sparse_steps(const JsonObject& root, ModelConfig* config) {
  const int64_t step = root.integer_or("decoder_sparse_step", 1, {.min = 1, .max = kMaxLayers});
  RoutingConfig& routing = config->routing;
  for (int layer = 0; layer < config->num_layers; ++layer) {
    config->layers[static_cast<size_t>(layer)].is_moe =
        routing.num_experts > 0 && step > 0 && (layer + 1) % step == 0;
  }
  for (const int64_t layer : root.integers_or("mlp_only_layers", {})) {
    if (layer >= 0 && layer < config->num_layers) {
      config->layers[static_cast<size_t>(layer)].is_moe = false;
    }
  }
  // A model of dense layers only: one expert that no layer has keeps all sizes positive.
  if (routing.num_experts == 0) routing.num_experts = routing.top_k = 1;
}

void set_first_dense(int64_t num_dense, ModelConfig* config) {
  for (int64_t layer = 0; layer < std::min<int64_t>(num_dense, config->num_layers); ++layer) {
    config->layers[static_cast<size_t>(layer)].is_moe = false;
  }
}

void read_dense_mlps(const JsonObject& root, ModelConfig* config) {
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  set_first_dense(config->num_layers, config);
  // As in read_sparse_steps().
  config->routing.num_experts = config->routing.top_k = 1;
  config->moe_intermediate_size = config->dense_intermediate_size;
}

void read_dense_layers(const JsonObject& root, ModelConfig* config) {
  const std::vector<std::string> types =
      read_layer_words(root, "mlp_layer_types", config->num_layers);
  for (size_t layer = 0; layer < types.size(); ++layer) {
    config->layers[layer].is_moe = types[layer] != "dense";
  }
}

void read_qwen_experts(const JsonObject& root, const ExpertKeys& keys, bool normalize,
                       ModelConfig* config) {
  read_experts(root, keys, config);
  config->shared_intermediate_size =
      positive(root, "shared_expert_intermediate_size", kMaxIntermediate);
  config->shared_expert_gate = true;
  config->routing.normalize = root.boolean_or("norm_topk_prob", normalize);
  config->routing.method =
      config->routing.normalize ? RoutingMethod::kRenormalize : RoutingMethod::kDefault;
  config->tensor_names.rename("mlp.shared_experts", "mlp.shared_expert");
}

int read_window(const JsonObject& root, int by_default) {
  constexpr std::string_view kKey = "sliding_window";
  return static_cast<int>(root.integer_or(kKey, is_null(root, kKey) ? 0 : by_default,
                                          {.min = 0, .max = kMaxPositions}));
}

std::vector<bool> read_layer_types(const JsonObject& root, const ModelConfig& config,
                                   std::string_view chosen, std::string_view other,
                                   const std::function<bool(int layer)>& by_default) {
  constexpr std::string_view kKey = "layer_types";
  const std::vector<std::string> types = read_layer_words(root, kKey, config.num_layers);
  std::vector<bool> is_chosen;
  for (int i = 0; i < config.num_layers; ++i) {
    const auto layer = static_cast<size_t>(i);
    is_chosen.push_back(types.empty() ? by_default(i) : types[layer] == chosen);
    if (types.empty() || is_chosen[layer] || types[layer] == other) continue;
    root.complain(
        fmt::format("{}[{}]", kKey, i),
        fmt::format("expected {} or {}, found {}", chosen, other, base::printable(types[layer])));
  }
  return is_chosen;
}

void read_sliding_layers(const JsonObject& root, int window,
                         const std::function<bool(int layer)>& by_default, ModelConfig* config) {
  const std::vector<bool> slides =
      read_layer_types(root, *config, "sliding_attention", "full_attention", by_default);
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer]) config->layers[layer].window = window;
    if (slides[layer] && window == 0 && readable(root)) {
      root.complain("sliding_window", "missing; layer_types has layers of sliding_attention");
    }
  }
}

void require_layer_types(const JsonObject& root, const ModelConfig& config, std::string_view only) {
  for (const std::string& type : read_layer_words(root, "layer_types", config.num_layers)) {
    if (type == only || (type == "attention" && only == "full_attention")) continue;
    root.complain("layer_types", fmt::format("expected only {}, found {}; wideep computes no other "
                                             "in this family",
                                             only, base::printable(type)));
  }
}

void require_full_attention(const JsonObject& root, const ModelConfig& config) {
  require_layer_types(root, config, "full_attention");
}

void require_silu(const JsonObject& root, std::string_view key) {
  if (root.string_or(key, "silu") != "swish") require_word(root, key, "silu");
}

int size_or(const JsonObject& root, std::string_view key, int by_default, int64_t max) {
  return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = max}));
}

float read_scale(const JsonObject& root, std::string_view key, double by_default) {
  return static_cast<float>(root.number_or(key, by_default, {.min = 1e-6, .max = 1e6}));
}

void name_experts_w123(const std::string& moe, weights::TensorNames* names) {
  for (const std::string& stem : {moe, std::string("mlp")}) {
    names->rename("mlp.experts.*.gate_proj", stem + ".experts.*.w1")
        .rename("mlp.experts.*.up_proj", stem + ".experts.*.w3")
        .rename("mlp.experts.*.down_proj", stem + ".experts.*.w2");
  }
  name_experts_below(moe, names);
}

void name_experts_below(const std::string& moe, weights::TensorNames* names) {
  for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
    names->rename(fmt::format("mlp.experts.*.{}", matrix),
                  fmt::format("{}.experts.*.{}", moe, matrix));
  }
  names->fuse_experts(moe + ".experts.gate_up_proj", moe + ".experts.down_proj");
}

void name_dense_w123(const std::string& dense, weights::TensorNames* names) {
  names->rename("mlp.gate_proj", dense + ".w1")
      .rename("mlp.up_proj", dense + ".w3")
      .rename("mlp.down_proj", dense + ".w2");
}

}  // namespace wideep::model
