// SPDX-License-Identifier: Apache-2.0
#include "advise/range.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "cost/rank_hardware.h"

namespace wideep::advise {

Status check_range(const cost::Hardware& hardware, const model::ModelConfig& config) {
  const cost::CalibratedRange& range = hardware.range;
  if (range.max_hidden <= 0.0) return {};
  if (config.hidden_size >= range.min_hidden && config.hidden_size <= range.max_hidden) {
    return {};
  }
  return invalid_input(
      fmt::format("cannot tell: the model's rows have {} elements, but {} is calibrated for {} to "
                  "{}; take another description of hardware",
                  config.hidden_size, hardware.name, range.min_hidden, range.max_hidden));
}

std::string outside_range(const cost::Hardware& hardware, const cost::Layout& layout) {
  const cost::CalibratedRange& range = hardware.range;
  if (range.max_hidden <= 0.0) return "";
  if (std::ranges::find(range.formats, layout.format) == range.formats.end()) {
    return std::string(kernels::weight_format_name(layout.format));
  }
  // Where ranks share cores, all of them count, whatever they have in common.
  const int ranks = hardware.divisible ? cost::ranks_of_node(hardware, layout.num_ranks())
                                       : layout.tensor_ranks();
  return ranks > range.max_ranks ? fmt::format("more than {} ranks", range.max_ranks) : "";
}

std::string text_of(const cost::Hardware& hardware, const cost::CalibratedRange& range) {
  std::vector<std::string_view> names;
  for (const auto format : range.formats) names.push_back(kernels::weight_format_name(format));
  return fmt::format("{} is calibrated for {}, at most {} ranks", hardware.name,
                     fmt::join(names, " and "), range.max_ranks);
}

std::string bound_tokens(const cost::Hardware& hardware, Choices* choices) {
  const cost::CalibratedRange& range = hardware.range;
  if (range.max_hidden <= 0.0 || choices->max_num_tokens <= range.max_tokens) return "";
  const int wanted = choices->max_num_tokens;
  choices->max_num_tokens = static_cast<int>(range.max_tokens);
  return fmt::format("{} tokens in an iteration: cannot tell beyond {}, for which {} is calibrated",
                     wanted, choices->max_num_tokens, hardware.name);
}

std::string cannot_tell(const cost::Hardware& hardware, const std::map<std::string, int>& outside) {
  std::vector<std::string> parts;
  int all = 0;
  for (const auto& [why, count] : outside) {
    all += count;
    parts.push_back(fmt::format("{} of {}", count, why));
  }
  return fmt::format("cannot tell of {} layouts, {}: {}", all, fmt::join(parts, ", "),
                     text_of(hardware, hardware.range));
}

}  // namespace wideep::advise
