// SPDX-License-Identifier: Apache-2.0
//
// GLM-5: DeepSeek-V3 with an indexer, which several layers may share.
#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "model/families/family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

void set_sharing(const JsonObject& root, std::string_view key, const std::string& word,
                 size_t layer, ModelConfig* config) {
  config->layers[layer].shares_index = word == "shared" || word == "S";
  if (config->layers[layer].shares_index || word == "full" || word == "F") return;
  root.complain(fmt::format("{}[{}]", key, layer),
                fmt::format("expected full or shared, found {}", base::printable(word)));
}

}  // namespace

// Which layers attend to what the layer before chose. indexer_types comes before
// index_topk_pattern ("FSS…", or words), and that before a schedule: one layer of index_topk_freq
// has an indexer, after the first index_skip_topk_offset.
void read_index_sharing(const JsonObject& root, ModelConfig* config) {
  constexpr std::string_view kTypes = "indexer_types", kPattern = "index_topk_pattern";
  const int64_t period = root.integer_or("index_topk_freq", 1, {.min = 1, .max = kMaxLayers});
  const int64_t offset =
      root.integer_or("index_skip_topk_offset", 2, {.min = 1, .max = kMaxLayers});
  for (size_t layer = 0; layer < config->layers.size(); ++layer) {
    const int64_t after = std::max<int64_t>(static_cast<int64_t>(layer) - offset + 1, 0);
    config->layers[layer].shares_index = period > 0 && after % period != 0;
  }
  const bool has_types = root.has(kTypes);
  const bool has_letters = root.has(kPattern) && root.raw().at(std::string(kPattern)).is_string();
  const std::string_view key = has_types ? kTypes : kPattern;
  std::vector<std::string> words;
  if (!has_types && has_letters) {
    for (const char letter : root.string(kPattern)) words.emplace_back(1, letter);
    words.resize(std::min(words.size(), config->layers.size()));
  } else if (root.has(key)) {
    words = read_layer_words(root, key, config->num_layers);
  }
  if (root.has(key) && readable(root) && words.size() != config->layers.size()) {
    root.complain(key, fmt::format("expected one of full or shared for each of the {} layers, "
                                   "found {}",
                                   config->layers.size(), words.size()));
    return;
  }
  for (size_t i = 0; i < words.size(); ++i) set_sharing(root, key, words[i], i, config);
  for (LayerConfig& layer : config->layers) {
    if (layer.mixer != LayerConfig::Mixer::kAttention) layer.shares_index = false;
  }
  if (config->layers.front().shares_index) {
    root.complain(fmt::format("{}[0]", key), "expected full (no layer before it), found shared");
  }
}

void read_glm_moe_dsa(const JsonObject& root, ModelConfig* config) {
  constexpr DeepseekDefaults kDefaults = {.dense_layers = 3,
                                          .shared_experts = 1,
                                          .mtp_layers = 1,
                                          .experts = 256,
                                          .top_k = 8,
                                          .groups = 1,
                                          .top_k_groups = 1,
                                          .normalize = true,
                                          .scaling_factor = 2.5};
  read_sparse_latent(root, kDefaults, config);
  require_flag(root, "indexer_rope_interleave", true);
  read_indexer(root, true, config);
  read_index_sharing(root, config);
}

}  // namespace wideep::model
