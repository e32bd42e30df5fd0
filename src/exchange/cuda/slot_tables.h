// SPDX-License-Identifier: Apache-2.0
//
// The placements of all layers on a rank's device, for choose_slots.h. A layer's tables stay where
// they are under every placement, so that captured graphs go on with the next one.
//
// Thread safety: that of its devices.
#pragma once

#include <span>
#include <vector>

#include "cuda/devices.h"
#include "ep/slot_choice.h"
#include "wideep/placement.h"

namespace wideep::cuda {

// The first slot of these ranks with an expert; −1: none.
int first_used_slot(const balance::Placement& placement, std::span<const int> ranks);

class SlotTables {
 public:
  static size_t num_bytes(const ExchangeShape& shape, int num_layers);

  // Errors (failed): not enough memory. REQUIRES: check_shape; num_layers ≥ 1.
  static Result<SlotTables> create(Devices& devices, const ExchangeShape& shape, int rank,
                                   int num_layers);

  // Errors (invalid input): no such layer; a placement that is not valid or of another shape;
  // shares that are not. shares: [S], or empty: equal ones.
  Status check(int layer, const balance::Placement& placement,
               std::span<const double> shares) const;

  // In the order of the rank's stream, for which it waits. What rounding has left of the layer's
  // earlier calls is forgotten. REQUIRES: check.
  Status set(int layer, const balance::Placement& placement, std::span<const double> shares);

  // Layers with an expert on one of these ranks have no placement any more.
  void leave_out(std::span<const int> ranks);

  // Errors (invalid input): no such layer, or one without a placement.
  Result<ReplicaTable> table(int layer) const;

 private:
  SlotTables(Devices& devices, const ExchangeShape& shape, int rank, int num_layers);
  Status check_layer(int layer) const;

  Devices* devices_;
  ExchangeShape shape_;
  int rank_;
  ep::SlotChooser chooser_;                     // computes what each rank's replicas get
  std::vector<balance::Placement> placements_;  // [num_layers]; without experts: none yet
  // Of all layers, one after the other.
  int32_t* first_ = nullptr;   // [num_layers, num_experts + 1]
  int32_t* slots_ = nullptr;   // [num_layers, S]
  int64_t* parts_ = nullptr;   // the same
  int64_t* credit_ = nullptr;  // the same
  int64_t* quotas_ = nullptr;  // the same
};

}  // namespace wideep::cuda
