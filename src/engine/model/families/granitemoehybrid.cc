// SPDX-License-Identifier: Apache-2.0
//
// IBM Granite 4 (H): Mamba-2 in most layers, attention without positions in the others, and
// Granite 3's experts with a shared MLP. Models without experts have the shared MLP alone.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// The words of transformers 5 and, in published files, of those before it.
void read_mamba_layers(const JsonObject& root, ModelConfig* config) {
  const char* key = root.has("layer_types") ? "layer_types" : "layers_block_type";
  const std::vector<std::string> words = read_layer_words(root, key, config->num_layers);
  for (size_t i = 0; i < config->layers.size(); ++i) {
    const std::string word = words.empty() ? "linear_attention" : words[i];
    LayerConfig& layer = config->layers[i];
    layer.rotates = false;
    if (word == "linear_attention" || word == "mamba") {
      layer.mixer = LayerConfig::Mixer::kMamba2;
    } else if (word != "full_attention" && word != "attention") {
      root.complain(fmt::format("{}[{}]", key, i),
                    fmt::format("expected linear_attention or full_attention, found {}",
                                base::printable(word)));
    }
  }
  // transformers rotates with "rope" and with no other word.
  const std::string positions = root.string_or("position_embedding_type", "nope");
  if (positions == "nope") return;
  require_word(root, "position_embedding_type", "rope");
  for (LayerConfig& layer : config->layers) layer.rotates = true;
}

// A number, or infinity as Python writes it: a word, or an object of transformers 5.
float step_limit(const nlohmann::json& value) {
  if (value.is_number()) return value.get<float>();
  const bool is_object = value.is_object() && value.contains("__float__");
  const nlohmann::json& word = is_object ? value.at("__float__") : value;
  if (word == "Infinity") return std::numeric_limits<float>::infinity();
  return std::numeric_limits<float>::quiet_NaN();
}

void read_mamba(const JsonObject& root, ModelConfig* config) {
  const auto size = [&](std::string_view key, int by_default, int64_t max) {
    return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = max}));
  };
  Mamba2Config& mamba = config->mamba2;
  read_mamba2(root,
              {.heads = "mamba_n_heads",
               .groups = "mamba_n_groups",
               .state_dim = "mamba_d_state",
               .convolution_width = "mamba_d_conv",
               .convolution_bias = "mamba_conv_bias",
               .projection_bias = "mamba_proj_bias"},
              &mamba);
  read_step_limits(root, &mamba);
  const int width = size("mamba_expand", 2, 64) * config->hidden_size;
  // As the published configuration class has it where the file does not say.
  mamba.head_dim = std::max(1, width / std::max(1, mamba.num_heads));
  constexpr std::string_view kHeadDim = "mamba_d_head";
  if (root.has(kHeadDim) && root.raw().at(std::string(kHeadDim)) != "auto") {
    mamba.head_dim = size(kHeadDim, 0, kMaxHeadDim);
  }
  if (!readable(root)) return;
  if (mamba.head_dim > kMaxHeadDim) {
    root.complain("mamba_n_heads",
                  fmt::format("expected heads of at most {} dimensions, found {} for the {} of "
                              "mamba_expand · hidden_size",
                              kMaxHeadDim, mamba.num_heads, width));
  }
  if (mamba.value_width() != width) {
    root.complain(
        "mamba_n_heads",
        fmt::format("expected heads of {} dimensions that make mamba_expand · hidden_size "
                    "= {} together, found {}",
                    mamba.head_dim, width, mamba.num_heads));
  }
}

}  // namespace

void read_mamba2(const JsonObject& root, const Mamba2Keys& keys, Mamba2Config* mamba) {
  const auto size = [&](std::string_view key, int by_default, int64_t max) {
    return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = max}));
  };
  mamba->num_heads = size(keys.heads, keys.num_heads, kMaxHeads);
  mamba->num_groups = size(keys.groups, keys.num_groups, kMaxHeads);
  mamba->state_dim = size(keys.state_dim, keys.num_states, kMaxHeadDim);
  mamba->convolution_width =
      static_cast<int>(root.integer_or(keys.convolution_width, 4, kConvolutionWidths));
  mamba->convolution_bias = root.boolean_or(keys.convolution_bias, true);
  mamba->projection_bias = root.boolean_or(keys.projection_bias, false);
  if (!readable(root) || mamba->num_heads % mamba->num_groups == 0) return;
  root.complain(keys.groups, fmt::format("expected a divisor of {} {}, found {}", keys.heads,
                                         mamba->num_heads, mamba->num_groups));
}

bool read_step_limits(const JsonObject& root, Mamba2Config* mamba) {
  constexpr std::string_view kKey = "time_step_limit";
  if (!root.has(kKey)) return false;
  const nlohmann::json& limits = root.raw().at(std::string(kKey));
  if (limits.is_array() && limits.size() == 2) {
    mamba->min_step = step_limit(limits[0]);
    mamba->max_step = step_limit(limits[1]);
    if (mamba->min_step >= 0.0f && mamba->max_step > 0.0f && mamba->min_step <= mamba->max_step) {
      return true;
    }
  }
  root.complain(kKey, "expected two limits, from 0 on, of which the second is not the smaller one");
  return false;
}

void read_granitemoehybrid(const JsonObject& root, ModelConfig* config) {
  read_granite_attention(root, config);
  read_mamba_layers(root, config);
  read_mamba(root, config);
  const int shared = static_cast<int>(
      root.integer_or("shared_intermediate_size", 1024, {.min = 1, .max = kMaxIntermediate}));
  if (root.integer_or("num_local_experts", 8, {.min = 0, .max = kMaxExperts}) > 0) {
    read_granite_experts(root, config);
    config->shared_intermediate_size = shared;
    return;
  }
  // What files say of experts that there are none of has no effect.
  for (const char* key : {"intermediate_size", "num_experts_per_tok"}) root.has(key);
  set_first_dense(config->num_layers, config);
  config->dense_intermediate_size = config->moe_intermediate_size = shared;
  config->routing.num_experts = config->routing.top_k = 1;  // as in read_sparse_steps()
  config->tensor_names.fuse_mlp("mlp", "shared_mlp.input_linear", "shared_mlp.output_linear");
}

}  // namespace wideep::model
