// SPDX-License-Identifier: Apache-2.0
//
// What `wideep bench ep` measures: the tests of a run and how rows travel in each.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "measure/ep_board.h"

namespace wideep::measure {

// How rows travel.
struct EpForm {
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined

  bool is_bf16() const { return rows == kernels::RowFormat::kBf16 && results == rows; }
};

// What rounds of a block are.
struct EpTest {
  int tokens = 0;  // of each rank; 0: the empty round
  ep::Combine combine = ep::Combine::kExact;
  EpForm form;
};

struct EpBenchOptions {
  EpGroup group;
  int hidden = 7168;  // elements of a row
  // A test each, with each of the following; an empty round comes first.
  std::vector<int> tokens = {1, 16};
  std::vector<ep::Combine> combines = {ep::Combine::kExact};
  std::vector<EpForm> forms = {EpForm{}};
  EpSum sum = EpSum::kRow;
  bool makes_results = false;            // EpRoundSetup's; not beside MPI, whose rounds make none
  std::optional<ep::Strategy> strategy;  // none: the one that moves fewer bytes
  bool with_mpi = false;
  int repeats = 5;
  std::chrono::microseconds block{50'000};
  std::chrono::milliseconds timeout{120'000};

  std::vector<EpTest> tests() const;
};
// Errors (invalid input): what cannot be measured, with the numbers.
Status check_options(const EpBenchOptions& options);

}  // namespace wideep::measure
