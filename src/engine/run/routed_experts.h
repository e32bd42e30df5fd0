// SPDX-License-Identifier: Apache-2.0
//
// The experts that the router has chosen for each token of a request.
//
//   rank: ChosenExperts of each layer → RoutedRows → RoutedPart ──▶ RoutedParts → RoutedExperts
//
// A position may be routed several times, on the same rank or on others: as a draft that turned out
// wrong, and again after a pause. Its last iteration counts.
//
// Thread safety: one thread each.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/reporter.h"
#include "run/event.h"

namespace wideep::run {

// Of one rank: the requests that want their experts, until they end.
class RoutedRows {
 public:
  // The rank's MoE layers, as RoutedPart has them.
  RoutedRows(int first_layer, int num_layers, int top_k)
      : first_layer_(first_layer), num_layers_(num_layers), top_k_(top_k) {}

  // layer: its index among the model's MoE layers. REQUIRES: chosen.positions is not empty if it
  // has tokens.
  void add(int layer, const engine::ChosenExperts& chosen);
  // The request has ended; its part is empty if nothing was kept of it.
  RoutedPart take(int request_index);
  void clear() { requests_.clear(); }

 private:
  struct Rows {
    std::vector<int64_t> iterations;  // [positions] −1: not routed here
    std::vector<int32_t> experts;     // [positions, num_layers, top_k]
  };
  size_t row_size() const { return static_cast<size_t>(num_layers_) * static_cast<size_t>(top_k_); }

  int first_layer_, num_layers_, top_k_;
  std::map<int, Rows> requests_;  // by index
};

// Of all ranks.
class RoutedParts {
 public:
  // ranks_per_request: that compute it and send a part. num_layers: the model's MoE layers.
  RoutedParts(int ranks_per_request, int num_layers, int top_k)
      : ranks_per_request_(ranks_per_request), num_layers_(num_layers), top_k_(top_k) {}

  // The whole if this was the request's last part, else nullopt.
  std::optional<RoutedExperts> add(const RoutedPart& part);
  // Drops what is not whole: its ranks begin again.
  void clear() { open_.clear(); }

 private:
  struct Open {
    int num_parts = 0;
    std::vector<int64_t> iterations;  // [positions, num_layers] −1: not routed
    std::vector<int32_t> experts;     // [positions, num_layers, top_k]
  };
  void merge(const RoutedPart& part, Open* open) const;
  RoutedExperts whole(int request_index, Open open) const;

  int ranks_per_request_, num_layers_, top_k_;
  std::map<int, Open> open_;  // by request
};

}  // namespace wideep::run
