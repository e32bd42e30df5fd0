// SPDX-License-Identifier: Apache-2.0
//
// Points of a sweep: how fast ranks and single users were, from the reports of wideep's benchmarks,
// from iteration logs and from the advisor.
//
// Which file is which follows from its content:
//
//   bench throughput, latency  their --report-json
//   bench serving              its --json. What a server's ranks are, only the file's name says:
//                              ep-8.drafts-1.1024-1024.concurrency-4.json (serving_sweep.sbatch)
//   an iteration log           …jsonl, with such a name
//   bench model                its --json: one point for each decode test
//   advise                     its --json: the layouts of which none is better in both
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::measure {

struct SweepPoint {
  int ranks = 1;                 // of the whole
  int ep = 1;                    // that share the experts
  std::string drafts;            // "": none; "3 drafts", "NGram"
  std::string layout;            // what else is said of it: "attention DP, 288 slots, nvfp4"
  std::string lengths;           // tokens of prompts and answers: "1024/1024"; "": not said
  bool predicted = false;        // else measured
  double tokens_per_user = 0.0;  // generated tokens a second of a request
  double tokens_per_rank = 0.0;  // generated tokens a second of a rank
};

// Errors (invalid input) name file and key: unreadable, no such report, or a server's report whose
// name does not say the ranks.
Result<std::vector<SweepPoint>> read_sweep_points(const std::string& path);

// Those of which no other is better in one and at least as good in the other, by ascending
// tokens_per_user; of equal ones one.
std::vector<SweepPoint> front_of(std::vector<SweepPoint> points);

// How many times the tokens of a rank of `base` those of `points` are, at a speed of users that
// both reach: the most over all such speeds, and that speed. Ratio 0: there is none.
struct FrontGain {
  double ratio = 0.0;
  double tokens_per_user = 0.0;
};
FrontGain largest_gain(const std::vector<SweepPoint>& points, const std::vector<SweepPoint>& base);

}  // namespace wideep::measure
