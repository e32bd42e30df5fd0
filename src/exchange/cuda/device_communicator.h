// SPDX-License-Identifier: Apache-2.0
//
// What is behind wideep/device_communicator.h, over any place: from options to a rank that has met
// the others and knows their segments.
//
// Thread safety: see there.
#pragma once

#include <memory>
#include <optional>

#include "cuda/dispatch_combine.h"
#include "cuda/load_statistics.h"
#include "cuda/rank_place.h"
#include "cuda/slot_tables.h"
#include "wideep/device_communicator.h"

namespace wideep::cuda {

// Errors (invalid input): what no group can have, by name.
Status check_options(const ep::DeviceCommunicatorOptions& options);

// Collective. REQUIRES: check_options.
Result<ep::DeviceCommunicator> join_at(std::unique_ptr<RankPlace> place,
                                       const ep::DeviceCommunicatorOptions& options);

}  // namespace wideep::cuda

// In the public header it has no members.
struct wideep::ep::DeviceCommunicator::State {
  DeviceCommunicatorOptions options;
  size_t device_bytes = 0;
  std::unique_ptr<cuda::RankPlace> place;
  std::unique_ptr<cuda::DispatchCombine> exchange;
  // If there are layers.
  std::optional<cuda::SlotTables> tables;
  std::optional<cuda::LoadStatistics> loads;
  cuda::LoadStatistics::Taken taken;
  bool has_dispatched = false;  // no combine yet
  int num_restarts = 0;
};
