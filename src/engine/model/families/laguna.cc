// SPDX-License-Identifier: Apache-2.0
//
// Poolside Laguna: layers have windows or not, with a rotation for each kind, and may differ in
// their number of heads; softplus of a gate multiplies attention's output.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;
using Gate = GroupedQueryConfig::Gate;

// A false is a gate for each element to transformers, though it says that there is none.
Gate read_gate(const JsonObject& root) {
  constexpr std::string_view kKey = "gating";
  if (!root.has(kKey)) return Gate::kHeads;
  const nlohmann::json& found = root.raw().at(std::string(kKey));
  const std::string word = found.is_string() ? found.get<std::string>() : "";
  const bool is_true = found.is_boolean() && found.get<bool>();
  if (is_true || word == "per-head") return Gate::kHeads;
  if (word == "per-element") return Gate::kElements;
  root.complain(kKey, fmt::format("expected true, per-head or per-element, found {}",
                                  base::printable(found.dump())));
  return Gate::kHeads;
}

// gating_types repeats gating by layer; transformers does not read it.
void check_gates(const JsonObject& root, Gate gate, int num_layers) {
  const std::string expected = gate == Gate::kHeads ? "per_head" : "per_element";
  for (std::string word : read_layer_words(root, "gating_types", num_layers)) {
    std::ranges::replace(word, '-', '_');
    if (word == expected) continue;
    root.complain("gating_types", fmt::format("expected only {}, as gating says, found {}",
                                              expected, base::printable(word)));
  }
}

// A kind of attention for each number of heads among the layers of a rotation. The first layer's is
// kind 0.
void read_heads_of_layers(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kKey = "num_attention_heads_per_layer";
  const std::vector<int64_t> heads = root.integers_or(kKey, {}, {.min = 1, .max = kMaxHeads});
  if (heads.empty() || !readable(root)) return;
  if (heads.size() != config->layers.size()) {
    root.complain(kKey, fmt::format("expected a number for each of the {} layers, found {}",
                                    config->num_layers, heads.size()));
    return;
  }
  std::map<std::pair<int, int64_t>, int> kinds;  // by rotation and heads
  std::vector<AttentionKind> all;
  for (size_t i = 0; i < heads.size(); ++i) {
    LayerConfig& layer = config->layers[i];
    const auto [kind, is_new] =
        kinds.try_emplace({layer.attention_kind, heads[i]}, static_cast<int>(all.size()));
    if (is_new) {
      all.push_back(config->attention_kind(layer.attention_kind));
      all.back().num_heads = static_cast<int>(heads[i]);
    }
    layer.attention_kind = kind->second;
    if (heads[i] % config->num_kv_heads == 0) continue;
    root.complain(fmt::format("{}[{}]", kKey, i),
                  fmt::format("expected a multiple of num_key_value_heads {}, found {}",
                              config->num_kv_heads, heads[i]));
  }
  config->num_heads = all[0].num_heads;
  config->grouped_query = all[0].options;
  config->rope = all[0].rope;
  config->other_kinds.assign(all.begin() + 1, all.end());
}

}  // namespace

void read_laguna(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 8, .head_dim = 128});
  read_attention_bias(root, false, true, config);
  GroupedQueryConfig& attention = config->grouped_query;
  attention.norm = GroupedQueryConfig::Norm::kHead;
  attention.gate = read_gate(root);
  attention.gate_softplus = true;
  check_gates(root, attention.gate, config->num_layers);
  read_sliding_layers(root, read_window(root, 512), [](int) { return false; }, config);
  read_sliding_kind(root, {.theta = 5e5, .rotated = 0.5}, {.theta = 1e4, .rotated = 1.0}, config);
  read_heads_of_layers(root, config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_experts(root, {.num_experts = 256, .num_chosen = 8}, config);
  config->shared_intermediate_size = static_cast<int>(
      root.integer_or("shared_expert_intermediate_size", 512, {.min = 1, .max = kMaxIntermediate}));
  set_first_dense(1, config);
  read_dense_layers(root, config);
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV3;  // with one group
  routing.selection_bias = true;
  require_flag(root, "norm_topk_prob", true);
  routing.scaling_factor = read_scale(root, "moe_routed_scaling_factor", 1.0);
  routing.logits_cap =
      static_cast<float>(root.number_or("moe_router_logit_softcapping", 0, {.min = 0, .max = 1e6}));
  require_flag(root, "moe_apply_router_weight_on_input", false);
  config->tensor_names
      .rename("mlp.gate.e_score_correction_bias", "mlp.experts.e_score_correction_bias")
      .rename("mlp.shared_experts", "mlp.shared_expert");
}

}  // namespace wideep::model
