// SPDX-License-Identifier: Apache-2.0
//
// Kimi-Linear (arXiv:2510.26692): Kimi Delta Attention, and latent attention without positions in
// every fourth layer or so; DeepSeek-V3's experts.
//
// Published files number the layers in linear_attn_config, from 1 on; transformers writes
// layer_types. Of other keys that are not DeepSeek's transformers takes both names.
#include <fmt/format.h>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::IntegerRange;
using formats::JsonObject;

constexpr std::string_view kLinear = "linear_attn_config";

// A number under its published name or the one that transformers gives it.
int64_t either(const JsonObject& root, std::string_view key, std::string_view other,
               int64_t by_default, IntegerRange range) {
  const int64_t found = root.integer_or(key, root.integer_or(other, by_default, range), range);
  expect_equal(root, other, key, found);
  return found;
}

// Whether each layer is one of Kimi Delta Attention: exactly one of two lists must have its number.
std::vector<bool> read_lists(const JsonObject& root, const ModelConfig& config) {
  const JsonObject object = root.object(kLinear);
  std::vector<int> kinds(static_cast<size_t>(config.num_layers), -1);
  for (const auto& [key, kind] : {std::pair("full_attn_layers", 0), std::pair("kda_layers", 1)}) {
    for (const int64_t layer : object.integers_or(key, {})) {
      if (layer < 1 || layer > config.num_layers || kinds[static_cast<size_t>(layer - 1)] >= 0) {
        object.complain(key, fmt::format("expected numbers of layers, 1 to {}, each once in one of "
                                         "full_attn_layers and kda_layers, found {}",
                                         config.num_layers, layer));
        return {};
      }
      kinds[static_cast<size_t>(layer - 1)] = kind;
    }
  }
  std::vector<bool> is_linear;
  for (const int kind : kinds) {
    if (kind < 0) {
      object.complain("kda_layers", fmt::format("expected layer {} here or in full_attn_layers",
                                                is_linear.size() + 1));
      return {};
    }
    is_linear.push_back(kind == 1);
  }
  return is_linear;
}

void read_mixers(const JsonObject& root, ModelConfig* config) {
  std::vector<bool> listed;
  if (root.has(kLinear) && root.object(kLinear).has("kda_layers")) {
    listed = read_lists(root, *config);
  }
  if (!readable(root)) return;
  const std::vector<bool> is_linear =
      read_layer_types(root, *config, "linear_attention", "full_attention", [&](int layer) {
        return listed.empty() ? layer == 0 || layer % 4 != 0 : listed[static_cast<size_t>(layer)];
      });
  if (!listed.empty() && is_linear != listed) {
    root.complain("layer_types", fmt::format("contradicts {}; give one of them", kLinear));
  }
  for (size_t i = 0; i < is_linear.size(); ++i) {
    config->layers[i].rotates = false;
    if (is_linear[i]) config->layers[i].mixer = LayerConfig::Mixer::kKimiDelta;
  }
}

void read_delta(const JsonObject& root, ModelConfig* config) {
  KimiDeltaConfig& net = config->kimi_delta;
  net.head_dim = read_linear_size(root, "head_dim", "linear_head_dim", 128, kKimiHeadDims);
  net.num_heads =
      read_linear_size(root, "num_heads", "linear_num_heads", 32, {.min = 1, .max = kMaxHeads});
  net.convolution_width = read_linear_size(root, "short_conv_kernel_size", "linear_conv_kernel_dim",
                                           4, kConvolutionWidths);
  net.decay_rank = net.gate_rank = net.head_dim;
}

}  // namespace

int read_linear_size(const JsonObject& root, std::string_view inner, std::string_view outer,
                     int by_default, IntegerRange range) {
  const bool inside = root.has(kLinear) && root.object(kLinear).has(inner);
  if (!inside) return static_cast<int>(root.integer_or(outer, by_default, range));
  const int64_t found = root.object(kLinear).integer(inner, range);
  expect_equal(root, outer, fmt::format("{}.{}", kLinear, inner), found);
  return static_cast<int>(found);
}

void read_kimi_experts(const JsonObject& root, const DeepseekDefaults& defaults,
                       ModelConfig* config) {
  const IntegerRange sizes = {.min = 1, .max = kMaxExperts};
  const IntegerRange layers = {.min = 0, .max = kMaxLayers};
  set_first_dense(root.integer_or("first_k_dense_replace", defaults.dense_layers, layers), config);
  read_dense_layers(root, config);
  root.integer_or("moe_layer_freq", 1, {.min = 1, .max = 1});
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->moe_intermediate_size = positive(root, "moe_intermediate_size", kMaxIntermediate);
  const int64_t shared = either(root, "num_shared_experts", "n_shared_experts",
                                defaults.shared_experts, {.min = 1, .max = kMaxSharedExperts});
  config->shared_intermediate_size = static_cast<int>(shared) * config->moe_intermediate_size;
  config->num_mtp_layers = static_cast<int>(
      either(root, "num_nextn_predict_layers", "num_mtp_layers", defaults.mtp_layers, layers));

  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV3;
  routing.selection_bias = true;
  routing.num_experts = read_num_experts(root, 1, defaults.experts);
  routing.top_k = static_cast<int>(
      either(root, "num_experts_per_token", "num_experts_per_tok", defaults.top_k, sizes));
  routing.num_groups =
      static_cast<int>(either(root, "num_expert_group", "n_group", defaults.groups, sizes));
  routing.top_k_groups =
      static_cast<int>(root.integer_or("topk_group", defaults.top_k_groups, sizes));
  routing.normalize = root.boolean_or("moe_renormalize", root.boolean_or("norm_topk_prob", true));
  require_flag(root, "norm_topk_prob", routing.normalize);
  routing.scaling_factor = read_scale(root, "routed_scaling_factor", defaults.scaling_factor);
  if (readable(root)) check_groups(root, routing);
}

void read_kimi_linear(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mla_use_nope", true);
  require_word(root, "moe_router_activation_func", "sigmoid");
  require_flag(root, "use_grouped_topk", true);
  read_latent_sizes(root, 0, config);
  // Of no effect without rotation; head_dim is that of no layer.
  for (const char* key : {"rope_theta", "rope_scaling", "head_dim"}) root.has(key);
  read_delta(root, config);
  read_mixers(root, config);
  read_kimi_experts(root,
                    {.dense_layers = 1,
                     .shared_experts = 1,
                     .experts = 256,
                     .top_k = 8,
                     .groups = 1,
                     .top_k_groups = 1,
                     .scaling_factor = 2.446},
                    config);
  name_experts_w123("block_sparse_moe", &config->tensor_names);
  config->tensor_names.rename("mlp", "block_sparse_moe");
}

}  // namespace wideep::model
