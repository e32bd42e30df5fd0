// SPDX-License-Identifier: Apache-2.0
//
// Qwen3-Next: gated delta nets (arXiv:2412.06464), and gated attention in every fourth layer.
//
// The layers are those of Qwen3.5 too (read_gated_layers), whose files have their projections
// apart. The tensors of the prediction layer are renamed one by one, since what is around the layer
// has names of another kind than what is in it.
#include <fmt/format.h>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_delta_net(const JsonObject& root, ModelConfig* config) {
  const auto size = [&](std::string_view key, int by_default, int64_t max) {
    return static_cast<int>(root.integer_or(key, by_default, {.min = 1, .max = max}));
  };
  DeltaNetConfig& net = config->delta_net;
  net.num_key_heads = size("linear_num_key_heads", 16, kMaxHeads);
  net.num_value_heads = size("linear_num_value_heads", 32, kMaxHeads);
  net.key_dim = size("linear_key_head_dim", 128, kMaxHeadDim);
  net.value_dim = size("linear_value_head_dim", 128, kMaxHeadDim);
  net.convolution_width =
      static_cast<int>(root.integer_or("linear_conv_kernel_dim", 4, kConvolutionWidths));
  require_word(root, "mamba_ssm_dtype", "float32");  // of the state
  require_silu(root, "output_gate_type");            // Qwen3.6's files name it
  if (!readable(root)) return;
  if (net.num_value_heads % net.num_key_heads != 0) {
    root.complain("linear_num_value_heads",
                  fmt::format("expected a multiple of linear_num_key_heads {}, found {}",
                              net.num_key_heads, net.num_value_heads));
  }
  // What is not divided: the matrices of the value heads of a key head.
  constexpr int64_t kMaxFloats = int64_t{1} << 26;
  const int64_t group = net.num_value_heads / net.num_key_heads;
  const int64_t floats = group * net.key_dim * net.value_dim;
  if (floats > kMaxFloats) {
    root.complain(
        "linear_value_head_dim",
        fmt::format("expected a state of at most {} numbers for each of the {} key heads, "
                    "found {} · {} · {}",
                    kMaxFloats, net.num_key_heads, group, net.key_dim, net.value_dim));
  }
}

void read_mixers(const JsonObject& root, ModelConfig* config) {
  const int64_t interval =
      root.integer_or("full_attention_interval", 4, {.min = 1, .max = kMaxLayers});
  if (!readable(root)) return;
  const std::vector<bool> is_linear =
      read_layer_types(root, *config, "linear_attention", "full_attention",
                       [&](int layer) { return (layer + 1) % interval != 0; });
  for (size_t i = 0; i < is_linear.size(); ++i) {
    if (is_linear[i]) config->layers[i].mixer = LayerConfig::Mixer::kDeltaNet;
  }
}

// One layer, whose tensors are not numbered as the others are. transformers leaves them out, and
// Qwen3-Next's config.json does not mention it.
void read_mtp(const JsonObject& root, ModelConfig* config) {
  config->num_mtp_layers =
      static_cast<int>(root.integer_or("mtp_num_hidden_layers", 1, {.min = 0, .max = kMaxLayers}));
  const bool own_embedding = root.boolean_or("mtp_use_dedicated_embeddings", false);
  config->names_mtp_layers = config->num_mtp_layers <= 1 && !own_embedding;
  config->left_out = {"mtp.", "model.visual."};
  name_mtp_layer(config);
}

}  // namespace

void read_gated_layers(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 2, .head_dim = 256});
  read_partial_rotary(root, 0.25, config);
  read_attention_bias(root, false, true, config);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  require_flag(root, "attn_output_gate", true);
  config->grouped_query.output_gate = true;
  config->norms_add_one = true;
  config->rope = read_rope(root, *config, 1e4);
  read_delta_net(root, config);
  read_mixers(root, config);
  read_mtp(root, config);
}

void read_qwen3_next(const JsonObject& root, ModelConfig* config) {
  read_gated_layers(root, config);
  config->delta_net.fused_projections = true;
  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_qwen_experts(root, {.num_experts = 512, .num_chosen = 10}, true, config);
  read_sparse_steps(root, config);
}

}  // namespace wideep::model
