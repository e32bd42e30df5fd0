// SPDX-License-Identifier: Apache-2.0
#include "model/gguf/gguf_layer_kinds.h"

#include <fmt/format.h>

#include <algorithm>

namespace wideep::model {

using Json = GgufKeys::Json;

std::vector<bool> sliding_layers(GgufKeys& keys, WindowPeriod otherwise) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const std::vector<int64_t> listed = keys.integers(kPattern);
  const int64_t period = keys.integer_or(kPattern, otherwise.layers);
  // More layers than any model has are an error of the reader of config.json.
  const auto layers = static_cast<size_t>(std::clamp<int64_t>(keys.num_layers(), 0, 4096));
  if (listed.empty() ? period == 0 && otherwise.layers == 0 : listed.size() < layers) {
    keys.complain(kPattern,
                  fmt::format("expected a list with an element for each of the {} "
                              "layers, found {}",
                              layers, listed.empty() ? "none" : fmt::format("{}", listed.size())));
  }
  std::vector<bool> slides;
  for (size_t layer = 0; layer < layers; ++layer) {
    const int64_t full = otherwise.first ? 0 : period - 1;
    slides.push_back(layer < listed.size()
                         ? listed[layer] != 0
                         : period > 0 && static_cast<int64_t>(layer) % period != full);
  }
  return slides;
}

Json layer_words(const std::vector<bool>& slides) {
  Json words = Json::array();
  for (const bool each : slides) {
    words.push_back(each ? "sliding_attention" : "full_attention");
  }
  return words;
}

Json number_of_kind(GgufKeys& keys, std::string_view key, const std::vector<bool>& slides,
                    bool of_sliding) {
  if (std::ranges::find(slides, of_sliding) == slides.end()) return nullptr;
  const std::vector<int64_t> list = keys.integers(key);
  if (list.empty()) return keys.value(key);
  if (list.size() < slides.size()) {
    keys.complain(key, fmt::format("expected a number for each of the {} layers, found {}",
                                   slides.size(), list.size()));
    return nullptr;
  }
  Json number;
  for (size_t layer = 0; layer < slides.size(); ++layer) {
    if (slides[layer] != of_sliding) continue;
    if (number.is_null()) number = list[layer];
    if (number == list[layer]) continue;
    keys.complain(key, fmt::format("expected {} for layer {}, as other layers {} have, found {}",
                                   number.get<int64_t>(), layer,
                                   of_sliding ? "with windows" : "of full attention", list[layer]));
  }
  return number;
}

void read_kind_rotations(GgufKeys& keys, const KindRotations& rotations) {
  Json& config = keys.config;
  const double heads = std::max(1.0, keys.number_or("attention.head_count", 1));
  const double dim = std::max(
      1.0, keys.number_or("attention.key_length", keys.number_or("embedding_length", 0) / heads));
  const double rotated = keys.number_or("rope.dimension_count", dim);
  const double theta = keys.number_or("rope.freq_base", 10000.0);
  Json full = {{"rope_type", "default"}};
  if (config.contains("rope_scaling")) {
    if (!rotations.scales) {
      keys.complain("rope.scaling.type",
                    "expected none; wideep scales no rotation in this "
                    "architecture");
    }
    full = config["rope_scaling"];
  }
  full["rope_theta"] = theta;
  full["partial_rotary_factor"] = rotated * rotations.full_share / dim;
  const Json sliding = {
      {"rope_type", "default"},
      {"rope_theta", keys.number_or("rope.freq_base_swa", theta)},
      {"partial_rotary_factor", keys.number_or("rope.dimension_count_swa", rotated) / dim}};
  config.erase("rope_scaling");
  config.erase("rope_theta");
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
  for (const char* key : {"rope_type", "factor"}) {
    keys.set_origin(
        fmt::format("rope_parameters.full_attention.{}", key),
        fmt::format("rope.scaling.{}", key == std::string_view("factor") ? key : "type"));
  }
  for (const auto& [kind, ending] : {std::pair("full", ""), {"sliding", "_swa"}}) {
    const std::string object = fmt::format("rope_parameters.{}_attention.", kind);
    keys.set_origin(object + "rope_theta", fmt::format("rope.freq_base{}", ending));
    keys.set_origin(object + "partial_rotary_factor",
                    fmt::format("rope.dimension_count{}", ending));
  }
}

}  // namespace wideep::model
