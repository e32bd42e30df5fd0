// SPDX-License-Identifier: Apache-2.0
//
// Records expert statistics while the server runs; clients start, stop and dump the recording.
//
//   start → the ranks begin with their next iteration → done
//   stop  → the ranks end                             → done: all iterations have arrived
//   dump  → a thread writes the files, in the format of --expert-statistic-path of all commands
//
// Thread safety: the serving thread.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "run/recorded_experts.h"
#include "wideep/status.h"

namespace wideep::server {

struct RecorderOptions {
  std::string directory;      // each dump creates a directory in it; "": recording is disabled
  int max_iterations = 1000;  // the last ones are kept
};

class ExpertRecorder {
 public:
  // The result of a call. iterations: the number kept so far, or for dump() written to `directory`.
  struct Outcome {
    Status status;
    std::string directory;
    size_t iterations = 0;
  };
  using Done = std::function<void(const Outcome&)>;

  ExpertRecorder(RecorderOptions options, run::ExpertRanks ranks)
      : options_(std::move(options)), ranks_(std::move(ranks)), recorded_(ranks_) {}
  ~ExpertRecorder() { join(); }
  ExpertRecorder(const ExpertRecorder&) = delete;
  ExpertRecorder& operator=(const ExpertRecorder&) = delete;

  // Must be called first. switch_ranks: RequestWriter::record_experts. post: runs a function on the
  // serving thread; callable from any thread. It outlives the recorder, or join() is called before
  // it ends.
  void connect(std::function<void(bool records)> switch_ranks,
               std::function<void(std::function<void()>)> post);

  // Each calls `done` once: at once if refused (invalid input: not in the right state), else when
  // it is complete. start() discards iterations that were not dumped. A dump that fails (failed)
  // leaves no files, and keeps the iterations for another one. Nor does one in the middle of which
  // the process dies, once another one has been connected.
  void start(Done done);
  void stop(Done done);
  void dump(Done done);

  // To be called with every event Iteration and ExpertRecording.
  void add(const run::Iteration& iteration);
  void ranks_switched(bool records);

  // Somebody waits for `done`.
  bool is_busy() const { return writing_ || waiting_ != nullptr; }
  // Waits for a dump that is being written.
  void join();
  // What would be lost if the server ended now, in one line; "": nothing.
  std::string undumped() const;

 private:
  enum class State { kOff, kStarting, kRecording, kStopping };
  Status check(State expected, const char* instead) const;
  std::string next_directory();
  static Status write_whole(const run::RecordedExperts& recorded, const std::string& directory);

  RecorderOptions options_;
  run::ExpertRanks ranks_;
  std::function<void(bool)> switch_ranks_;
  std::function<void(std::function<void()>)> post_;
  State state_ = State::kOff;
  Done waiting_;                   // to be called when the ranks have switched
  run::RecordedExperts recorded_;  // empty while a dump is written
  int num_dumps_ = 0;
  bool writing_ = false;
  std::thread writer_;
};

}  // namespace wideep::server
