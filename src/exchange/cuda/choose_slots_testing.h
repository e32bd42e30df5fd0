// SPDX-License-Identifier: Apache-2.0
//
// Random choices of slots on devices, call after call, against ep::SlotChooser: by given shares on
// one rank, and by counts on all.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/dispatch_combine.h"
#include "wideep/placement.h"

namespace wideep::cuda {

struct ChoiceCase {
  ExchangeShape shape;
  balance::Placement placement;
  std::vector<double> shares;  // [S]
  int rank = 0;                // whose tokens get slots by given shares
  int ranks_per_node = 1;      // for the choice by counts
  int num_index_threads = 32;
  uint64_t seed = 1;
};

ChoiceCase random_choice(uint64_t seed);

// Errors (failed): what the kernel did wrong, or the first call with other slots than the CPU's.
// devices: for shape.ep_size ranks.
Status play_choice(Devices& devices, const ChoiceCase& c);
// Several experts have replicas on several ranks, and some ranks are hot.
ChoiceCase random_choice_by_counts(uint64_t seed);
Status play_choice_by_counts(Devices& devices, const ChoiceCase& c);

}  // namespace wideep::cuda
