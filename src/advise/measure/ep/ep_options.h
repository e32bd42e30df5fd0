// SPDX-License-Identifier: Apache-2.0
//
// The options of `wideep bench ep`: the tests of a run and the row formats of each.
#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "measure/ep/ep_board.h"

namespace wideep::measure {

// Row formats of a test.
struct EpForm {
  kernels::RowFormat rows = kernels::RowFormat::kBf16;     // dispatched
  kernels::RowFormat results = kernels::RowFormat::kBf16;  // combined

  bool is_bf16() const { return rows == kernels::RowFormat::kBf16 && results == rows; }
};

// The kind of rounds of a block.
struct EpTest {
  int tokens = 0;  // per rank; 0: the empty round, without rows
  ep::Combine combine = ep::Combine::kExact;
  EpForm form;
};

struct EpBenchOptions {
  EpGroup group;
  int hidden = 7168;  // elements of a row
  // One test for every combination of these three; an empty round comes first.
  std::vector<int> tokens = {1, 16};
  std::vector<ep::Combine> combines = {ep::Combine::kExact};
  std::vector<EpForm> forms = {EpForm{}};
  EpSum sum = EpSum::kRow;
  bool makes_results = false;            // see EpRoundSetup; not with MPI, whose rounds do not
  std::optional<ep::Strategy> strategy;  // nothing: the one that moves fewer bytes
  bool with_mpi = false;
  int repeats = 5;
  std::chrono::microseconds block{50'000};
  std::chrono::milliseconds timeout{120'000};

  std::vector<EpTest> tests() const;
};
// Errors (invalid input): options that cannot be measured, with the numbers.
Status check_options(const EpBenchOptions& options);

}  // namespace wideep::measure
