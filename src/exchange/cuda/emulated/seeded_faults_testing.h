// SPDX-License-Identifier: Apache-2.0
//
// Goes through all places of kernels with all faults that fit (mutation.h).
//
//   WIDEEP_CUDA_FAULTS=n   only every n-th fault, and prints what has found it
//
// Thread safety: plain functions.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "cuda/emulated/mutation.h"

namespace wideep::cuda {

// find(mutation): what tells of the fault; empty: nothing does. Returns the faults that nothing has
// told of, a line each.
std::string missed_faults(const std::set<Site>& sites,
                          const std::function<std::string(const Mutation&)>& find);

}  // namespace wideep::cuda
