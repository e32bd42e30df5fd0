// SPDX-License-Identifier: Apache-2.0
//
// Tencent Hunyuan-A13B: queries and keys are normalised after the rotation.
//
// Its files may give a list with a number for each layer. Lists of equal numbers are read as the
// one number: layers of different sizes would need experts of different shapes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// A number, or a list with the same number for each layer.
int read_equal(const JsonObject& root, std::string_view key, int by_default, int64_t max) {
  const formats::IntegerRange range = {.min = 1, .max = max};
  if (!root.has(key) || !root.raw().at(std::string(key)).is_array()) {
    return static_cast<int>(root.integer_or(key, by_default, range));
  }
  const std::vector<int64_t> list = root.integers(key, range);
  if (list.empty()) return by_default;
  const auto other =
      std::find_if(list.begin(), list.end(), [&](int64_t value) { return value != list.front(); });
  if (other != list.end()) {
    root.complain(fmt::format("{}[{}]", key, other - list.begin()),
                  fmt::format("expected {}, as in the first layer, found {}; wideep computes only "
                              "equal layers",
                              list.front(), *other));
  }
  return static_cast<int>(list.front());
}

void expect(const JsonObject& root, std::string_view key, std::string_view source, int expected) {
  const int found = read_equal(root, key, expected, kMaxIntermediate);
  if (!readable(root) || found == expected) return;
  root.complain(key, fmt::format("expected {} {}, found {}", source, expected, found));
}

// The type "dynamic" with alpha is no dynamic scaling: the base of the frequencies is
// theta · alpha^(d / (d − 2)), whatever the length. The other keys beside it have no effect.
RopeConfig read_alpha(const JsonObject& root, const JsonObject& rope, int head_dim) {
  constexpr std::array kKnown = {"type",      "rope_type", "rope_theta", "alpha",         "factor",
                                 "beta_fast", "beta_slow", "mscale",     "mscale_all_dim"};
  for (const std::string& key : rope.keys()) {
    if (std::find(kKnown.begin(), kKnown.end(), key) != kKnown.end()) continue;
    rope.complain(key, "not a key of Hunyuan's dynamic rotary parameters");
  }
  if (!rope.has("alpha")) {
    rope.complain("alpha", "missing; wideep computes no dynamic scaling without it");
  }
  constexpr formats::NumberRange kThetas = {.min = 2, .max = 1e12};
  const double outside = root.number_or("rope_theta", 1e4, kThetas);
  const double theta = rope.number_or("rope_theta", outside, kThetas);
  if (root.has("rope_theta") && theta != outside) {
    rope.complain("rope_theta",
                  fmt::format("found {} and, elsewhere in the file, {}; give one", theta, outside));
  }
  const double alpha = rope.number_or("alpha", 1.0, {.min = 1.0, .max = 1e9});
  RopeConfig config;
  config.theta = theta * std::pow(alpha, head_dim / (head_dim - 2.0));
  return config;
}

RopeConfig read_hunyuan_rope(const JsonObject& root, const ModelConfig& config) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!root.has(key)) continue;
    const JsonObject rope = root.object(key);
    if (rope.string_or("rope_type", rope.string_or("type", "default")) != "dynamic") continue;
    if (root.has("rope_scaling") && root.has("rope_parameters")) {
      root.complain("rope_scaling", "is there beside rope_parameters; give one of them");
    }
    if (readable(root) && config.head_dim == 2) {
      root.complain("head_dim",
                    "expected more than 2 dimensions with dynamic rotary parameters, "
                    "found 2");
    }
    if (readable(root)) return read_alpha(root, rope, config.head_dim);
  }
  return read_rope(root, config, 1e4);
}

}  // namespace

void read_hunyuan_v1_moe(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  for (const char* key : {"use_qk_norm", "use_mixed_mlp_moe", "norm_topk_prob"}) {
    require_flag(root, key, true);
  }
  for (const char* key : {"use_cla", "use_mla"}) require_flag(root, key, false);
  root.integer_or("moe_layer_num_skipped", 0, {.min = 0, .max = 0});
  read_grouped_query(root, config);
  expect_equal(root, "attention_head_dim", "head_dim", config->head_dim);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  config->grouped_query.norm_after_rotation = true;
  read_attention_bias(root, false, true, config);
  config->rope = read_hunyuan_rope(root, *config);
  require_full_attention(root, *config);

  config->routing.num_experts = read_equal(root, "num_experts", 1, kMaxExperts);
  config->routing.top_k = read_equal(root, "moe_topk", 1, kMaxExperts);
  config->routing.method = RoutingMethod::kRenormalize;
  check_top_k(root, "moe_topk", config->routing);
  config->moe_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  config->shared_intermediate_size = config->moe_intermediate_size;
  expect(root, "moe_intermediate_size", "intermediate_size", config->moe_intermediate_size);
  expect(root, "num_shared_expert", "a shared MLP of one expert's size,", 1);
  config->tensor_names.rename("self_attn.q_norm", "self_attn.query_layernorm")
      .rename("self_attn.k_norm", "self_attn.key_layernorm")
      .rename("mlp.gate", "mlp.gate.wg")
      .rename("mlp.shared_experts", "mlp.shared_mlp");
}

}  // namespace wideep::model
