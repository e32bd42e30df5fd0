// SPDX-License-Identifier: Apache-2.0
//
// Readers of files that list a number for each layer, where others have one for each kind of
// layers.
//
// Such lists may go on with the layers that predict further tokens, whose entries have no effect.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "model/families/family.h"

namespace wideep::model {

using formats::JsonObject;

std::vector<double> read_layer_numbers(const JsonObject& root, std::string_view key,
                                       size_t num_layers) {
  if (!root.has(key)) return {};
  const nlohmann::json& list = root.raw().at(std::string(key));
  std::vector<double> numbers;
  for (const nlohmann::json& entry : list.is_array() ? list : nlohmann::json::array({""})) {
    const double number = entry.is_number() ? entry.get<double>() : 0.0;
    if ((!entry.is_number() && !entry.is_null()) || !(number >= 0.0 && number <= 1e12)) break;
    numbers.push_back(number);
  }
  if (list.is_array() && numbers.size() == list.size() && numbers.size() >= num_layers) {
    numbers.resize(num_layers);
    return numbers;
  }
  root.complain(key, fmt::format("expected a list of a number (or null) for each of the {} layers",
                                 num_layers));
  return {};
}

namespace {

struct LayersOfKind {
  const ModelConfig& config;
  bool slides = false;
};

// The entry of layers of a kind, which all have the same; 0: there are none, or no such key.
double number_of_kind(const JsonObject& root, std::string_view key, const LayersOfKind& kind,
                      formats::NumberRange range) {
  const std::vector<LayerConfig>& layers = kind.config.layers;
  const std::vector<double> numbers = read_layer_numbers(root, key, layers.size());
  double of_kind = 0.0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if ((layers[i].window > 0) != kind.slides) continue;
    if (of_kind == 0.0) of_kind = numbers[i];
    const std::string name = fmt::format("{}[{}]", key, i);
    if (numbers[i] < range.min || numbers[i] > range.max) {
      root.complain(name, fmt::format("expected a number from {:g} to {:g}, found {:g}", range.min,
                                      range.max, numbers[i]));
    } else if (numbers[i] != of_kind) {
      root.complain(name, fmt::format("expected {:g}, as other layers of its kind have, found {:g}",
                                      of_kind, numbers[i]));
    }
  }
  return of_kind;
}

// The letters of the pattern for the words of transformers 5 and of those before it.
char letter_of(const nlohmann::json& word) {
  if (word == "linear_attention" || word == "mamba") return 'M';
  if (word == "full_attention" || word == "attention") return '*';
  if (word == "moe") return 'E';
  return word == "mlp" ? '-' : '?';
}

}  // namespace

void read_listed_rope(const JsonObject& root, bool slides, const ModelConfig& config,
                      AttentionKind* kind) {
  constexpr std::string_view kTheta = "rope_theta", kShares = "partial_rotary_factors";
  const bool is_list = root.has(kTheta) && root.raw().at(std::string(kTheta)).is_array();
  const LayersOfKind of{config, slides};
  constexpr formats::NumberRange kThetas = {.min = 2, .max = 1e12};
  const double theta =
      is_list ? number_of_kind(root, kTheta, of, kThetas) : root.number_or(kTheta, 1e4, kThetas);
  const double share = number_of_kind(root, kShares, of, {.min = 1e-3, .max = 1.0});
  if (root.has("rope_scaling") && !slides) {
    kind->rope =
        read_rope_object(root, root.object("rope_scaling"), config, theta > 0.0 ? theta : 1e4);
  }
  if (theta > 0.0) kind->rope.theta = theta;
  kind->options.rotary_dim = kind->head_dim;
  if (share > 0.0) kind->options.rotary_dim = rotated_dimensions(root, share, kind->head_dim);
}

void read_listed_moe_layers(const JsonObject& root, std::string_view key, ModelConfig* config) {
  nlohmann::json list = root.raw().at(std::string(key));
  if (list.is_string()) {
    list = nlohmann::json::parse("[" + list.get<std::string>() + "]", nullptr, false);
  }
  set_first_dense(config->num_layers, config);
  for (const nlohmann::json& layer : list.is_array() ? list : nlohmann::json::array({""})) {
    if (!layer.is_number_unsigned()) {
      return root.complain(key, "expected numbers of layers, as 3,4,5");
    }
    const auto index = layer.get<uint64_t>();
    if (index < config->layers.size()) config->layers[index].is_moe = true;
  }
}

std::string read_layer_letters(const JsonObject& root) {
  for (const char* key : {"layers_block_type", "layer_types"}) {
    if (!root.has(key)) continue;
    std::string letters;
    const nlohmann::json& words = root.raw().at(key);
    if (!words.is_array()) root.complain(key, "expected a list of a word for each layer");
    std::ranges::transform(words, std::back_inserter(letters), letter_of);
    if (root.string_or(kLayerPattern, letters) != letters) {
      root.complain(kLayerPattern, fmt::format("expected {}, as {} says", letters, key));
    }
    return letters;
  }
  return root.string_or(kLayerPattern, "ME*-");
}

int count_layer_letters(const JsonObject& root) {
  const auto count = static_cast<int64_t>(read_layer_letters(root).size());
  return static_cast<int>(std::clamp<int64_t>(count, 1, kMaxLayers));
}

}  // namespace wideep::model
