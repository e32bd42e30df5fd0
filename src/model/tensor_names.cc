// SPDX-License-Identifier: Apache-2.0
#include "model/tensor_names.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

#include "base/printable.h"

namespace wideep::model {
namespace {

// The number after the first occurrence of `part` in a name: "….experts.12.…" has 12 after
// ".experts.".
std::optional<int> number_after(std::string_view name, std::string_view part) {
  const size_t at = name.find(part);
  if (at == std::string_view::npos) return {};
  const std::string_view digits = name.substr(at + part.size());
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end == digits.data() + digits.size() || *end != '.') return {};
  return number;
}

// What the configuration has instead of the tensor; "": it allows the tensor.
std::string objection(const ModelConfig& config, std::string_view name) {
  const auto layer = number_after(name, "model.layers.");
  if (!layer) return {};
  const int mtp_end = config.num_layers + config.num_mtp_layers;
  if (*layer >= config.num_layers && *layer < mtp_end) return {};
  if (*layer >= mtp_end) return fmt::format("{} layers", config.num_layers);
  const auto expert = number_after(name, ".mlp.experts.");
  if (expert && *expert >= config.routing.num_experts) {
    return fmt::format("{} experts", config.routing.num_experts);
  }
  const bool shared = name.find(".mlp.shared_expert") != std::string_view::npos;
  if (shared && config.num_shared_experts == 0) return "no shared experts";
  const bool bias = name.ends_with(".bias") && !name.ends_with("norm.bias");
  return bias ? "no biases" : "";
}

}  // namespace

Status check_tensor_names(const ModelConfig& config, std::span<const std::string> names,
                          const std::string& where) {
  for (const std::string& name : names) {
    const std::string instead = objection(config, name);
    if (instead.empty()) continue;
    return invalid_input(
        fmt::format("{}: {}: a tensor that config.json leaves out, which has {}; correct it, or "
                    "remove the tensor",
                    where, base::printable(name), instead));
  }
  return {};
}

}  // namespace wideep::model
