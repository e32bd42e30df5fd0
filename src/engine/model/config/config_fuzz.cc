// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as config.json: no crash, and an accepted config keeps its promises.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "model/config/config.h"

namespace wideep::model {
namespace {

void check_delta_net(const DeltaNetConfig& net) {
  WIDEEP_CHECK_GT(net.num_key_heads, 0);
  WIDEEP_CHECK_EQ(net.num_value_heads % net.num_key_heads, 0);
  WIDEEP_CHECK_GT(net.key_dim, 0);
  WIDEEP_CHECK_GT(net.value_dim, 0);
  WIDEEP_CHECK_GT(net.convolution_width, 0);
  const int64_t group = net.num_value_heads / net.num_key_heads;
  WIDEEP_CHECK_LE(group * net.key_dim * net.value_dim, int64_t{1} << 26);
}

void check_mamba2(const Mamba2Config& mamba) {
  WIDEEP_CHECK_GT(mamba.num_groups, 0);
  WIDEEP_CHECK_EQ(mamba.num_heads % mamba.num_groups, 0);
  WIDEEP_CHECK_GT(mamba.head_dim, 0);
  WIDEEP_CHECK_GT(mamba.state_dim, 0);
  WIDEEP_CHECK_LE(mamba.head_dim, 4096);
  WIDEEP_CHECK_LE(mamba.state_dim, 4096);
  WIDEEP_CHECK_GT(mamba.convolution_width, 0);
}

void check_kimi_delta(const KimiDeltaConfig& net) {
  WIDEEP_CHECK_GT(net.num_heads, 0);
  WIDEEP_CHECK_GT(net.head_dim, 0);
  WIDEEP_CHECK_GT(net.convolution_width, 0);
  WIDEEP_CHECK_LE(net.decay_bound, 0.0f);
}

void check_promises(const ModelConfig& config) {
  WIDEEP_CHECK_GT(config.vocab_size, 0);
  WIDEEP_CHECK_GT(config.hidden_size, 0);
  WIDEEP_CHECK_GT(config.num_heads, 0);
  WIDEEP_CHECK_GT(config.head_dim, 0);
  WIDEEP_CHECK_EQ(config.num_heads % config.num_kv_heads, 0);
  WIDEEP_CHECK_EQ(config.layers.size(), static_cast<size_t>(config.num_layers));
  const int rotated = config.is_mla() ? config.qk_rope_head_dim : config.grouped_query.rotary_dim;
  const bool rotates =
      std::any_of(config.layers.begin(), config.layers.end(), [](const LayerConfig& layer) {
        return layer.mixer == LayerConfig::Mixer::kAttention && layer.rotates;
      });
  WIDEEP_CHECK_GE(rotated, rotates ? 2 : 0);
  WIDEEP_CHECK_LE(rotated, config.head_dim);
  WIDEEP_CHECK_EQ(rotated % 2, 0);
  if (!config.is_mla()) WIDEEP_CHECK_GT(config.grouped_query.scale, 0.0f);
  for (const AttentionKind& kind : config.other_kinds) {
    WIDEEP_CHECK_GT(kind.head_dim, 0);
    WIDEEP_CHECK_GT(kind.value_dim, 0);
    WIDEEP_CHECK_EQ(kind.num_heads % kind.num_kv_heads, 0);
    WIDEEP_CHECK_EQ(kind.options.rotary_dim % 2, 0);
    WIDEEP_CHECK_LE(kind.options.rotary_dim, kind.head_dim);
    WIDEEP_CHECK_LE(kind.rope.rotating_pairs, kind.options.rotary_dim / 2);
  }
  for (const LayerConfig& layer : config.layers) {
    WIDEEP_CHECK_GE(layer.attention_kind, 0);
    WIDEEP_CHECK_LT(layer.attention_kind, config.num_attention_kinds());
    WIDEEP_CHECK_GE(layer.window, 0);
    WIDEEP_CHECK_GE(layer.chunk, 0);
    if (layer.mixer == LayerConfig::Mixer::kConvolution) {
      WIDEEP_CHECK_GT(config.convolution_width, 0);
    }
    if (layer.mixer == LayerConfig::Mixer::kDeltaNet) check_delta_net(config.delta_net);
    if (layer.mixer == LayerConfig::Mixer::kMamba2) check_mamba2(config.mamba2);
    if (layer.mixer == LayerConfig::Mixer::kKimiDelta) check_kimi_delta(config.kimi_delta);
  }
  WIDEEP_CHECK(!config.layers.front().shares_index);
  WIDEEP_CHECK_GE(config.rope.theta, 2.0);
  WIDEEP_CHECK_GT(config.rope.attention_factor, 0.0);

  const RoutingConfig& routing = config.routing;
  WIDEEP_CHECK_EQ(routing.num_experts % routing.num_groups, 0);
  WIDEEP_CHECK_LE(routing.top_k_groups, routing.num_groups);
  WIDEEP_CHECK_LE(routing.top_k, routing.num_experts / routing.num_groups * routing.top_k_groups);
}

}  // namespace
}  // namespace wideep::model

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = wideep::model::parse_model_config(text, "config.json");
  if (config.ok()) wideep::model::check_promises(*config);
  return 0;
}
