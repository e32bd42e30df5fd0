// SPDX-License-Identifier: Apache-2.0
//
// DeepSeek-V2 (arXiv:2405.04434): latent attention, softmax routing.
#include <fmt/format.h>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void read_routing(const JsonObject& root, ModelConfig* config) {
  RoutingConfig& routing = config->routing;
  routing.method = RoutingMethod::kDeepseekV2;
  routing.normalize = false;
  routing.num_experts =
      static_cast<int>(root.integer_or("n_routed_experts", 64, {.min = 1, .max = kMaxExperts}));
  routing.top_k = positive(root, "num_experts_per_tok", kMaxExperts);
  routing.scaling_factor = read_scale(root, "routed_scaling_factor", 1.0);
  require_word(root, "scoring_func", "softmax");
  if (root.boolean_or("norm_topk_prob", false)) {
    config->notes.push_back(
        "norm_topk_prob: true has no effect; DeepSeek-V2's weights are never "
        "divided by their sum");
  }
  expect_equal(root, "num_local_experts", "n_routed_experts", routing.num_experts);
  const formats::IntegerRange groups = {.min = 1, .max = kMaxExperts};
  const auto num_groups = static_cast<int>(root.integer_or("n_group", 1, groups));
  const auto top_k_groups = static_cast<int>(root.integer_or("topk_group", 1, groups));
  const std::string method = root.string_or("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    routing.num_groups = num_groups;
    routing.top_k_groups = top_k_groups;
  } else if (method != "greedy") {
    root.complain("topk_method", fmt::format("expected greedy or group_limited_greedy, found {}",
                                             base::printable(method)));
  }
  if (readable(root)) check_groups(root, routing);
}

}  // namespace

void read_deepseek_v2(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  require_flag(root, "mlp_bias", false);
  require_flag(root, "rope_interleave", true);
  read_latent_attention(root, config);
  read_deepseek_layers(root, {.shared_experts = 2}, config);
  read_routing(root, config);
  config->rope = read_rope(root, *config, 1e4);
  config->rope.interleaved = true;
  require_full_attention(root, *config);
}

}  // namespace wideep::model
