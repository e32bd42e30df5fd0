// SPDX-License-Identifier: Apache-2.0
//
// `wideep bench ep`: times dispatch and combine between rank processes, next to their limits and,
// if asked, next to MPI.
//
// The speed of a virtual machine changes from second to second, so whatever is compared is measured
// in turn in one run. A turn has, for each test, a block of wideep's rounds, a block of plain
// copies of as many bytes, and a block of each kind of MPI rounds that bring back as many rows.
// Ratios and shares are medians over the turns. Each rank is pinned to a processor, MPI's ranks to
// the same ones.
//
// Thread safety: one thread. REQUIRES: the caller has started no other thread, because ranks are
// forked.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "measure/ep/ep_board.h"
#include "measure/ep/ep_options.h"
#include "measure/ep/mpi_baseline.h"
#include "measure/model/bench_report.h"

namespace wideep::measure {

// Times are in microseconds.
struct EpTestReport {
  EpTest test;
  ep::Strategy strategy = ep::Strategy::kDispatch;
  int num_rounds = 0;  // of the last block
  Figure round;        // median over rounds of the slowest rank's time
  Figure mean;         // duration of a block / its rounds
  double prepare = 0.0, dispatch = 0.0, combine = 0.0;
  double cpu = 0.0;       // processor time per rank and round
  double wait_cpu = 0.0;  // the part of cpu spent in waits
  double bytes = 0.0;     // sent and pulled in a round by all ranks
  Figure copy;            // plain copies of as many bytes; 0 in an empty round
  double copy_cpu = 0.0;  // processor time per rank of these copies
  Figure share;           // copy / mean
  Figure of_first_form;   // mean / that of the same test with the first form
  // With MPI, by MpiRows.
  struct Peer {
    Figure round;
    Figure ratio;       // MPI's round / wideep's
    Figure mean_ratio;  // MPI's mean / wideep's
  };
  std::array<std::optional<Peer>, std::size(kMpiRows)> mpi;
};

struct EpBenchReport {
  std::string isa;
  std::vector<int> processors;         // the processor of each rank
  std::optional<Figure> ping_pong_ns;  // round trip; nothing if ranks 0 and 1 share a processor
  std::vector<EpTestReport> tests;     // in the order of options.tests()
};

// on_turn is called after each of options.repeats turns of all tests.
// Errors: those of check_options; failed: a rank or mpirun fails.
Result<EpBenchReport> run_ep_bench(const EpBenchOptions& options,
                                   const std::function<void()>& on_turn);

}  // namespace wideep::measure
