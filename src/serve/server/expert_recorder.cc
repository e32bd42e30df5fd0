// SPDX-License-Identifier: Apache-2.0
//
// A dump is written by a thread that owns its iterations, and they come back if it fails; the
// directory gets its name when it is whole.
#include "server/expert_recorder.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "formats/whole_directory.h"

namespace wideep::server {
void ExpertRecorder::connect(std::function<void(bool)> switch_ranks,
                             std::function<void(std::function<void()>)> post) {
  switch_ranks_ = std::move(switch_ranks);
  post_ = std::move(post);
  if (!options_.directory.empty()) {
    formats::WholeDirectory::remove_leftovers(options_.directory);
  }
}

Status ExpertRecorder::check(State expected, const char* instead) const {
  if (options_.directory.empty()) {
    return invalid_input(
        "expert statistics cannot be recorded: start the server with --expert-statistic-path DIR");
  }
  if (state_ == State::kStarting) return invalid_input("the recording is just being started");
  if (state_ == State::kStopping) return invalid_input("the recording is just being stopped");
  return state_ == expected ? Status() : invalid_input(instead);
}

void ExpertRecorder::start(Done done) {
  Status refused = check(State::kOff, "expert statistics are being recorded already");
  if (!refused.ok()) return done({.status = std::move(refused), .directory = {}});
  // A dump that fails gives its iterations back.
  if (writing_) refused = invalid_input("a dump is being written");
  if (!refused.ok()) return done({.status = std::move(refused), .directory = {}});
  recorded_.clear();
  state_ = State::kStarting;
  waiting_ = std::move(done);
  switch_ranks_(true);
}

void ExpertRecorder::stop(Done done) {
  Status refused = check(State::kRecording, "no expert statistics are being recorded");
  if (!refused.ok()) return done({.status = std::move(refused), .directory = {}});
  state_ = State::kStopping;
  waiting_ = std::move(done);
  switch_ranks_(false);
}

void ExpertRecorder::ranks_switched(bool records) {
  state_ = records ? State::kRecording : State::kOff;
  const Done done = std::exchange(waiting_, nullptr);
  if (done) done({.status = {}, .directory = {}, .iterations = recorded_.size()});
}

// A rank that joins while the others record is told to record before it gets its first request:
// until then it sends no counts, and has had no tokens either.
void ExpertRecorder::add(const run::Iteration& iteration) {
  using Taken = run::RecordedExperts::Taken;
  recorded_.add(iteration, state_ == State::kRecording ? Taken::kAskedOrIdle : Taken::kAsked);
  if (recorded_.size() > static_cast<size_t>(options_.max_iterations)) recorded_.drop_first();
}

// The first "dump-<n>" that does not exist: dumps of earlier servers are kept.
std::string ExpertRecorder::next_directory() {
  std::error_code ignored;
  std::string directory;
  do {
    directory = fmt::format("{}/dump-{}", options_.directory, ++num_dumps_);
  } while (std::filesystem::exists(directory, ignored));
  return directory;
}

void ExpertRecorder::dump(Done done) {
  const auto refuse = [&](Status why) { done({.status = std::move(why), .directory = {}}); };
  const Status refused = check(State::kOff, "the recording must be stopped before it is dumped");
  if (!refused.ok()) return refuse(refused);
  if (writing_) return refuse(invalid_input("a dump is being written"));
  if (recorded_.empty()) return refuse(invalid_input("no iteration has been recorded"));
  join();  // the previous writer has finished, but its thread object must be joined
  writing_ = true;
  // The thread reads only these iterations; it calls back by post_.
  const auto recorded = std::make_shared<run::RecordedExperts>(std::move(recorded_));
  recorded_ = run::RecordedExperts(ranks_);
  writer_ = std::thread([this, done = std::move(done), recorded, directory = next_directory()] {
    const Outcome outcome{write_whole(*recorded, directory), directory, recorded->size()};
    post_([this, done, outcome, recorded] {
      writing_ = false;
      if (!outcome.status.ok()) {
        recorded_ = std::move(*recorded);
        --num_dumps_;
      }
      done(outcome);
    });
  });
}

Status ExpertRecorder::write_whole(const run::RecordedExperts& recorded,
                                   const std::string& directory) {
  auto whole = formats::WholeDirectory::create(directory);
  Status written = whole.ok() ? recorded.write(whole->path()) : whole.status();
  if (written.ok()) written = whole->finish();
  if (written.ok()) return {};
  return failed(written.message() + "; the recording is kept, dump it again");
}

std::string ExpertRecorder::undumped() const {
  if (recorded_.empty()) return {};
  return fmt::format(
      "expert statistics of {} iterations ({}-{}) were recorded but not dumped: they are lost",
      recorded_.size(), recorded_.first(), recorded_.last() + 1);
}

void ExpertRecorder::join() {
  if (writer_.joinable()) writer_.join();
}

}  // namespace wideep::server
