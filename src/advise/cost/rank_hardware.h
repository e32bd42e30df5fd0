// SPDX-License-Identifier: Apache-2.0
//
// What one rank has of a machine whose ranks share its cores: as many whole cores as there are for
// it, at least one, with the constants of kernels for so many, and its part of the memory's
// bandwidth while as many ranks run as there are cores.
//
// Thread safety: pure functions.
#pragma once

#include "cost/hardware.h"

namespace wideep::cost {

// Of a divisible machine's ranks, those that share its cores: all of a node.
int ranks_of_node(const Hardware& hardware, int num_ranks);

// The whole cores of a rank. REQUIRES: hardware.divisible.
int cores_of_rank(const Hardware& hardware, int num_ranks);

// How many ranks take turns on a core; 1 where each has one.
double turns_of_ranks(const Hardware& hardware, int num_ranks);

// The machine as a rank sees it that reads some of `bytes` again and again together with the
// others, in products of this format. Other than divisible machines stay as they are.
Hardware rank_hardware(Hardware hardware, kernels::WeightFormat format, int num_ranks,
                       double bytes);

// The same for dense weights, of which ranks that take turns on a core read the same.
Hardware dense_hardware(const Hardware& hardware, kernels::WeightFormat format, int num_ranks,
                        double bytes);

}  // namespace wideep::cost
