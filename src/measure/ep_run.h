// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench ep`: dispatch and combine between rank processes, beside what limits them and,
// where asked, beside MPI.
//
// A virtual machine changes from second to second, so whatever is compared is measured in turn in
// one run: of each test a block of wideep's rounds, one of plain copies of as many bytes, one of
// each kind of MPI's that brings back as many rows, and all tests again. Ratios and shares are
// medians over those turns. Ranks stay on a processor each, MPI's on the same ones.
//
// Thread safety: one thread; it forks the ranks, so the caller has started no other.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "measure/bench_report.h"
#include "measure/ep_board.h"
#include "measure/ep_options.h"
#include "measure/mpi_baseline.h"

namespace wideep::measure {

// Microseconds where nothing else is said.
struct EpTestReport {
  EpTest test;
  ep::Strategy strategy = ep::Strategy::kDispatch;
  int num_rounds = 0;  // of the last block
  Figure round;        // median over rounds of the slowest rank's time
  Figure mean;         // a block's time per round
  double prepare = 0.0, dispatch = 0.0, combine = 0.0;
  double cpu = 0.0;       // processor time per rank and round
  double wait_cpu = 0.0;  // of it, in waits
  double bytes = 0.0;     // of all ranks, sent and pulled in a round
  Figure copy;            // as many bytes without a protocol; 0 in an empty round
  double copy_cpu = 0.0;  // of it, processor time per rank
  Figure share;           // copy / round
  Figure of_first_form;   // round / that of the same test in the first form
  // With MPI, by MpiRows.
  struct Peer {
    Figure round;
    Figure ratio;       // its time / wideep's
    Figure mean_ratio;  // the same, of blocks' times per round
  };
  std::array<std::optional<Peer>, std::size(kMpiRows)> mpi;
};

struct EpBenchReport {
  std::string isa;
  std::vector<int> processors;         // of each rank
  std::optional<Figure> ping_pong_ns;  // there and back; none where ranks 0 and 1 share a processor
  std::vector<EpTestReport> tests;     // as options.tests()
};

// on_turn is called after each of options.repeats turns of all tests.
// Errors: those of check_options; failed: a rank fails; mpirun does.
Result<EpBenchReport> run_ep_bench(const EpBenchOptions& options,
                                   const std::function<void()>& on_turn);

}  // namespace wideep::measure
