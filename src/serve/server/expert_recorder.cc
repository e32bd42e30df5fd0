// SPDX-License-Identifier: Apache-2.0
//
// An iteration is kept only if all of its tokens were counted: a rank without counts must have had
// no tokens. A dump is written by a thread that owns its iterations, and they come back if it
// fails; the directory gets its name when it is whole. Readers of the format want numbers that
// follow each other and fit an int: where the iterations' own do not, they are renumbered, and
// meta_info.json has their own.
#include "server/expert_recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/whole_directory.h"
#include "recordings/statistics_writer.h"

namespace wideep::server {
namespace {

bool has_tokens(const engine::LayerRecord& layer) {
  return std::ranges::any_of(layer.sent, [](int32_t pairs) { return pairs > 0; });
}

// The numbers under which iterations are written. Readers of the format, TensorRT-LLM's too, want
// numbers that follow each other, and that are no larger than an int.
struct WrittenNumbers {
  int first = 0;
  std::string own;  // "140-145,150": the iterations' own numbers, where these are others
};

WrittenNumbers written_numbers(const std::vector<int64_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  WrittenNumbers written;
  if (own.front() < std::numeric_limits<int>::max() - count) {
    written.first = static_cast<int>(own.front());
  }
  if (own.back() == written.first + count - 1) return written;
  for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
    for (end = begin + 1; end < own.size() && own[end] == own[end - 1] + 1; ++end) {
    }
    written.own += fmt::format("{}{}", written.own.empty() ? "" : ",", own[begin]);
    if (end > begin + 1) written.own += fmt::format("-{}", own[end - 1]);
  }
  return written;
}

// Says in meta_info.json which iterations they were.
Status note_numbers(const std::string& directory, const std::string& own) {
  const std::string path = directory + "/meta_info.json";
  WIDEEP_TRY_ASSIGN(std::string text, formats::read_file(path));
  const size_t end = text.find_last_of('}');
  WIDEEP_CHECK(end != std::string::npos);
  text.insert(end, fmt::format(", \"recorded_iterations\": \"{}\"", own));
  return formats::write_file(path, text);
}

}  // namespace

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
  iterations_.clear();
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
  if (done) done({.status = {}, .directory = {}, .iterations = iterations_.size()});
}

// An iteration counts only if all of its tokens have been counted. A rank that was not there has
// had none: zeros. One that joins while the others record is told to record before it gets its
// first request: until then it sends no counts, and has had no tokens either.
void ExpertRecorder::add(const run::Iteration& iteration) {
  const auto num_experts = static_cast<size_t>(ranks_.statistics.num_experts);
  Iteration kept{.number = iteration.ranks[0].iteration, .counts = {}};
  for (const run::ExpertRanks::Rank& rank : ranks_.ranks) {
    kept.counts.emplace_back(rank.moe_layers.size(), std::vector<int32_t>(num_experts));
  }
  bool any = false;
  for (size_t i = 0; i < iteration.ranks.size(); ++i) {
    std::vector<std::vector<int32_t>>& counts = kept.counts[static_cast<size_t>(iteration.rank(i))];
    const std::vector<engine::LayerRecord>& layers = iteration.ranks[i].layers;
    WIDEEP_CHECK_EQ(counts.size(), layers.size());
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      if (!layers[layer].counts.empty()) {
        counts[layer] = layers[layer].counts;
        any = true;
      } else if (state_ != State::kRecording || has_tokens(layers[layer])) {
        return;
      }
    }
  }
  if (!any) return;
  iterations_.push_back(std::move(kept));
  if (iterations_.size() > static_cast<size_t>(options_.max_iterations)) iterations_.pop_front();
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
  if (iterations_.empty()) return refuse(invalid_input("no iteration has been recorded"));
  join();  // the previous writer has finished, but its thread object must be joined
  writing_ = true;
  // The thread reads only these iterations and ranks_, which is constant; it calls back by post_.
  const auto iterations = std::make_shared<std::deque<Iteration>>(std::exchange(iterations_, {}));
  writer_ = std::thread([this, done = std::move(done), iterations, directory = next_directory()] {
    const Outcome outcome{write_whole(ranks_, directory, *iterations), directory,
                          iterations->size()};
    post_([this, done, outcome, iterations] {
      writing_ = false;
      if (!outcome.status.ok()) {
        iterations_ = std::move(*iterations);
        --num_dumps_;
      }
      done(outcome);
    });
  });
}

Status ExpertRecorder::write_whole(const run::ExpertRanks& ranks, const std::string& directory,
                                   const std::deque<Iteration>& iterations) {
  auto whole = formats::WholeDirectory::create(directory);
  Status written = whole.ok() ? write(ranks, whole->path(), iterations) : whole.status();
  if (written.ok()) written = whole->finish();
  if (written.ok()) return {};
  return failed(written.message() + "; the recording is kept, dump it again");
}

// Where iterations were not recorded, because members of the group changed, the others are numbered
// as if they followed each other.
Status ExpertRecorder::write(const run::ExpertRanks& ranks, const std::string& directory,
                             const std::deque<Iteration>& iterations) {
  std::vector<int64_t> own;
  for (const Iteration& each : iterations) own.push_back(each.number);
  const WrittenNumbers written = written_numbers(own);
  for (size_t rank = 0; rank < ranks.ranks.size(); ++rank) {
    const std::vector<int>& layers = ranks.ranks[rank].moe_layers;
    if (layers.empty()) continue;
    recordings::StatisticsWriter writer(directory, ranks.ranks[rank].file, ranks.statistics);
    int number = written.first;
    for (const Iteration& each : iterations) {
      for (size_t i = 0; i < layers.size(); ++i) {
        const std::vector<int64_t> counts(each.counts[rank][i].begin(), each.counts[rank][i].end());
        writer.add(number, layers[i], counts);
      }
      ++number;
    }
    WIDEEP_TRY(writer.write());
  }
  return written.own.empty() ? Status() : note_numbers(directory, written.own);
}

std::string ExpertRecorder::undumped() const {
  if (iterations_.empty()) return {};
  return fmt::format(
      "expert statistics of {} iterations ({}-{}) were recorded but not dumped: they are lost",
      iterations_.size(), iterations_.front().number, iterations_.back().number + 1);
}

void ExpertRecorder::join() {
  if (writer_.joinable()) writer_.join();
}

}  // namespace wideep::server
