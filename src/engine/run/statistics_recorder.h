// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics of a range of iterations, in TensorRT-LLM's file format
// (run/recorded_experts.h).
//
// Only iterations that every rank has finished are events, so all files have the same ones, also of
// a run that ends early. They are written as soon as the range is complete, so that a later failure
// of the run cannot lose them.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>

#include "run/record_request.h"
#include "run/recorded_experts.h"

namespace wideep::run {

class StatisticsRecorder {
 public:
  // next: the least number of the first iteration that comes. If that is not 0, another process has
  // recorded before this one, which has ended: what it has written stays.
  StatisticsRecorder(StatisticsRequest request, ExpertRanks ranks, int64_t next = 0);

  // To be called with every iteration, in order. Errors (failed): the files cannot be written, with
  // the first iteration after the range.
  Status add(const Iteration& iteration);
  // After the last one. Errors (failed): the files cannot be written.
  Status finish();

  // After finish(): how much of the range is missing, and why, in one line; "": nothing. why: "the
  // run had only", say.
  std::string missing(const std::string& why) const;
  int64_t num_recorded() const { return num_recorded_; }
  // Whether the process before has written the range.
  bool was_done_before() const { return done_before_; }

 private:
  Status write();

  StatisticsRequest request_;
  RecordedExperts recorded_;
  int64_t next_;  // the next iteration's number, at least
  int64_t num_recorded_ = 0;
  int64_t first_ = 0, last_ = 0;  // of those recorded
  bool done_before_ = false;      // by the process before
  bool done_ = false;
};

}  // namespace wideep::run
