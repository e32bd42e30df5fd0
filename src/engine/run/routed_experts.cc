// SPDX-License-Identifier: Apache-2.0
#include "run/routed_experts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace wideep::run {
namespace {

constexpr int kNotRouted = -1;

}  // namespace

void RoutedRows::add(int layer, const engine::ChosenExperts& chosen) {
  WIDEEP_CHECK_EQ(chosen.positions.size(), chosen.owners.size());
  const auto top_k = static_cast<size_t>(top_k_);
  const size_t of_layer = static_cast<size_t>(layer - first_layer_) * top_k;
  for (size_t token = 0; token < chosen.owners.size(); ++token) {
    const engine::Request& request = chosen.owners[token]->request;
    if (!request.returns_experts) continue;
    Rows& rows = requests_[request.index];
    const auto position = static_cast<size_t>(chosen.positions[token]);
    if (position >= rows.iterations.size()) {
      rows.iterations.resize(position + 1, kNotRouted);
      rows.experts.resize((position + 1) * row_size(), kNotRouted);
    }
    rows.iterations[position] = chosen.iteration;
    std::copy_n(chosen.experts.begin() + static_cast<ptrdiff_t>(token * top_k), top_k,
                rows.experts.begin() + static_cast<ptrdiff_t>(position * row_size() + of_layer));
  }
}

RoutedPart RoutedRows::take(int request_index) {
  RoutedPart part{.request_index = request_index,
                  .first_layer = first_layer_,
                  .num_layers = num_layers_,
                  .positions = {},
                  .iterations = {},
                  .experts = {}};
  const auto found = requests_.extract(request_index);
  if (found.empty()) return part;
  const Rows& rows = found.mapped();
  for (size_t position = 0; position < rows.iterations.size(); ++position) {
    if (rows.iterations[position] == kNotRouted) continue;
    part.positions.push_back(static_cast<int32_t>(position));
    part.iterations.push_back(rows.iterations[position]);
    const auto row = rows.experts.begin() + static_cast<ptrdiff_t>(position * row_size());
    part.experts.insert(part.experts.end(), row, row + static_cast<ptrdiff_t>(row_size()));
  }
  return part;
}

std::optional<RoutedExperts> RoutedParts::add(const RoutedPart& part) {
  Open& open = open_[part.request_index];
  merge(part, &open);
  if (++open.num_parts < ranks_per_request_) return std::nullopt;
  return whole(part.request_index, std::move(open_.extract(part.request_index).mapped()));
}

void RoutedParts::merge(const RoutedPart& part, Open* open) const {
  if (part.positions.empty() || part.num_layers == 0) return;
  const auto layers = static_cast<size_t>(num_layers_), top_k = static_cast<size_t>(top_k_);
  const size_t num_positions = static_cast<size_t>(part.positions.back()) + 1;
  if (num_positions * layers > open->iterations.size()) {
    open->iterations.resize(num_positions * layers, kNotRouted);
    open->experts.resize(num_positions * layers * top_k, kNotRouted);
  }
  const size_t row_size = static_cast<size_t>(part.num_layers) * top_k;
  for (size_t i = 0; i < part.positions.size(); ++i) {
    const size_t at =
        static_cast<size_t>(part.positions[i]) * layers + static_cast<size_t>(part.first_layer);
    int64_t& iteration = open->iterations[at];  // that of the part's other layers too
    if (part.iterations[i] < iteration) continue;
    iteration = part.iterations[i];
    std::copy_n(part.experts.begin() + static_cast<ptrdiff_t>(i * row_size), row_size,
                open->experts.begin() + static_cast<ptrdiff_t>(at * top_k));
  }
}

// Up to the first position that lacks a layer.
RoutedExperts RoutedParts::whole(int request_index, Open open) const {
  RoutedExperts all{.request_index = request_index,
                    .num_layers = num_layers_,
                    .top_k = top_k_,
                    .experts = std::move(open.experts)};
  const size_t row_size = static_cast<size_t>(num_layers_) * static_cast<size_t>(top_k_);
  if (row_size == 0) return all;
  const auto hole = std::ranges::find(all.experts, kNotRouted) - all.experts.begin();
  all.num_positions = static_cast<int>(static_cast<size_t>(hole) / row_size);
  all.experts.resize(static_cast<size_t>(all.num_positions) * row_size);
  return all;
}

}  // namespace wideep::run
