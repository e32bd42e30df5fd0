// SPDX-License-Identifier: Apache-2.0
//
// Expert statistics of what is served: begun, ended and written on request.
//
//   start → the ranks begin with their next iteration → started
//   stop  → they end                                  → stopped: all iterations are here
//   dump  → written by a thread of its own, as `wideep generate --expert-statistic-path` does
//
// Thread safety: the serving thread.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "run/iteration_summary.h"
#include "run/rank_group.h"
#include "wideep/status.h"

namespace wideep::server {

struct RecorderOptions {
  std::string directory;       // where dumps go, each into a directory of its own; "": nowhere
  int most_iterations = 1000;  // the last that are kept
};

class ExpertRecorder {
 public:
  // What became of a request; iterations: that are kept, or written into `directory`.
  struct Outcome {
    Status status;
    std::string directory;
    size_t iterations = 0;
  };
  using Done = std::function<void(const Outcome&)>;

  ExpertRecorder(RecorderOptions options, run::ExpertRanks ranks)
      : options_(std::move(options)), ranks_(std::move(ranks)) {}
  ~ExpertRecorder() { join(); }
  ExpertRecorder(const ExpertRecorder&) = delete;
  ExpertRecorder& operator=(const ExpertRecorder&) = delete;

  // Before anything else. tell_ranks: RequestWriter::record_experts. post: calls on the serving
  // thread, from any; outlives the recorder or is not called after join().
  void connect(std::function<void(bool records)> tell_ranks,
               std::function<void(std::function<void()>)> post);

  // Each calls `done` once, at once where it is refused (invalid input: not in this state).
  // start() forgets what was recorded and not dumped.
  void start(Done done);
  void stop(Done done);
  void dump(Done done);

  // From the ranks.
  void add(const run::Iteration& iteration);
  void ranks_have(bool records);

  // Waits for a dump that is being written.
  void join();

 private:
  enum class State { kOff, kStarting, kRecording, kStopping };
  struct Iteration {
    int64_t number = 0;
    std::vector<std::vector<std::vector<int32_t>>> counts;  // [rank][its MoE layer][num_experts]
  };
  Status check(State expected, const char* instead) const;
  Result<std::string> next_directory();
  static Status write(const run::ExpertRanks& ranks, const std::string& directory,
                      const std::deque<Iteration>& iterations);

  RecorderOptions options_;
  run::ExpertRanks ranks_;
  std::function<void(bool)> tell_ranks_;
  std::function<void(std::function<void()>)> post_;
  State state_ = State::kOff;
  Done waiting_;  // for the ranks
  std::deque<Iteration> iterations_;
  int num_dumps_ = 0;
  bool writing_ = false;
  std::thread writer_;
};

}  // namespace wideep::server
