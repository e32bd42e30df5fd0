// SPDX-License-Identifier: Apache-2.0
//
// JetBrains Mellum 2: Qwen3-MoE with windows in some layers, which rotate otherwise than the layers
// of full attention.
#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// At most one layer, with windows and experts unless the file says otherwise.
void read_mellum_mtp(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kMlp = "mtp_mlp_layer_types";
  const formats::IntegerRange layers = {.min = 0, .max = 1};
  const int64_t mtp = root.integer_or("num_mtp_layers", 0, layers);
  config->num_mtp_layers =
      static_cast<int>(root.integer_or("num_nextn_predict_layers", mtp, layers));
  config->left_out = {"mtp."};
  for (const char* key : {"mtp_layer_types", "mtp_mlp_layer_types"}) root.has(key);
  if (config->num_mtp_layers == 0 || !readable(root)) return;
  const std::vector<std::string> mlp = read_layer_words(root, kMlp, 1);
  if (!mlp.empty() && mlp[0] != "sparse" && mlp[0] != "dense") {
    root.complain(kMlp, "expected sparse or dense, found " + base::printable(mlp[0]));
  }
  config->prediction_layer.is_moe = mlp.empty() || mlp[0] == "sparse";
  config->names_mtp_layers = set_prediction_window(root, true, config);
  name_mtp_layer(config);
}

}  // namespace

void read_mellum(const JsonObject& root, ModelConfig* config) {
  require_silu(root);
  read_grouped_query(root, config, {.kv_heads = 4, .head_dim = 128});
  read_attention_bias(root, false, true, config);
  config->grouped_query.norm = GroupedQueryConfig::Norm::kHead;
  read_sliding_layers(root, read_window(root, 1024), [](int) { return false; }, config);
  read_sliding_kind(root, {.theta = 5e5}, {.theta = 1e4}, config);

  config->dense_intermediate_size = positive(root, "intermediate_size", kMaxIntermediate);
  read_experts(root, {.num_experts = 64, .num_chosen = 8}, config);
  RoutingConfig& routing = config->routing;
  routing.normalize = root.boolean_or("norm_topk_prob", true);
  routing.method = routing.normalize ? RoutingMethod::kRenormalize : RoutingMethod::kDefault;
  read_dense_layers(root, config);
  read_mellum_mtp(root, config);
}

}  // namespace wideep::model
