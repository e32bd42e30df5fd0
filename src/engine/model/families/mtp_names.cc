// SPDX-License-Identifier: Apache-2.0
//
// One layer that predicts further tokens, outside the numbered ones, by the names of Qwen3-Next.
// Others have taken them over.
#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {

using formats::JsonObject;

void name_mtp_layer(ModelConfig* config) {
  const std::string layer = fmt::format("model.layers.{}.", config->num_layers);
  const std::string published = "mtp.layers.0.";
  const auto rename = [&](const char* canonical, const std::string& name) {
    config->tensor_names.rename(layer + canonical, name);
  };
  rename("enorm", "mtp.pre_fc_norm_embedding");
  rename("hnorm", "mtp.pre_fc_norm_hidden");
  rename("eh_proj", "mtp.fc");
  rename("shared_head.norm", "mtp.norm");
  for (const char* same :
       {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp.gate",
        "mlp.shared_expert_gate", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
    rename(same, published + same);
  }
  rename("mlp.shared_experts", published + "mlp.shared_expert");
  // One tensor for each expert, or for all.
  using weights::TensorPart;
  const auto rename_experts = [&](const char* matrix, const char* of_all, TensorPart part) {
    const std::string expert = fmt::format("mlp.experts.*.{}", matrix);
    rename(expert.c_str(), published + expert);
    config->tensor_names.rename(layer + expert, published + "mlp.experts." + of_all, part);
  };
  rename_experts("gate_proj", "gate_up_proj", {TensorPart::Rows::kFirstHalf});
  rename_experts("up_proj", "gate_up_proj", {TensorPart::Rows::kSecondHalf});
  rename_experts("down_proj", "down_proj", {});
}

bool set_prediction_window(const JsonObject& root, bool by_default, ModelConfig* config) {
  constexpr std::string_view kKey = "mtp_layer_types";
  bool slides = by_default;
  if (const std::vector<std::string> words = read_layer_words(root, kKey, 1); !words.empty()) {
    slides = words[0] == "sliding_attention";
    if (!slides && words[0] != "full_attention") {
      root.complain(kKey, fmt::format("expected full_attention or sliding_attention, found {}",
                                      base::printable(words[0])));
    }
  }
  const auto alike = std::ranges::find_if(
      config->layers, [&](const LayerConfig& layer) { return (layer.window > 0) == slides; });
  if (alike == config->layers.end()) return false;
  const bool is_moe = config->prediction_layer.is_moe;
  config->prediction_layer = *alike;
  config->prediction_layer.is_moe = is_moe;
  return true;
}

}  // namespace wideep::model
