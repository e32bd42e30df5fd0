// SPDX-License-Identifier: Apache-2.0
// wideep generate --profile-range: what every rank did when, as a Chrome trace.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

struct Event {
  std::string name;
  int rank, lane, iteration, layer;
  double start, end;
  bool contains(const Event& other) const { return start <= other.start && other.end <= end; }
};

std::vector<Event> events_of(const json& trace) {
  std::vector<Event> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double start = event.at("ts"), length = event.at("dur");
    const json& args = event.at("args");
    events.push_back({event.at("name"), event.at("pid"), event.at("tid"), args.at("iteration"),
                      args.value("layer", -1), start, start + length});
  }
  return events;
}

class CommandProfile : public testing::Test {
 protected:
  CommandEnd profile(std::vector<std::string> more) {
    more.insert(more.end(), {"--ranks", "4", "--max-tokens", "5", "--profile-output", path_});
    return run_command(generate(small_model(), more));
  }

  const base::ScratchDirectory directory_;
  const std::string path_ = directory_.file("profile.json");
};

// Beside or inside each other, but for the thousandths of a microsecond to which times are written.
void expect_nested(const std::vector<Event>& events) {
  constexpr double kRounding = 0.002;
  std::map<std::pair<int, int>, std::vector<Event>> lanes;
  for (const Event& event : events) lanes[{event.rank, event.lane}].push_back(event);
  for (const auto& [lane, all] : lanes) {
    for (const Event& a : all) {
      for (const Event& b : all) {
        const bool apart = a.end <= b.start + kRounding || b.end <= a.start + kRounding;
        EXPECT_TRUE(apart || a.contains(b) || b.contains(a)) << a.name << " and " << b.name;
      }
    }
  }
}

TEST_F(CommandProfile, ShowsTheSharedExpertWhileRowsTravel) {
  const CommandEnd end = profile({"--profile-range", "1-2,3-4"});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json trace = json::parse(formats::read_file(path_).value());
  EXPECT_EQ(trace.at("otherData").at("droppedEvents"), 0);
  const std::vector<Event> events = events_of(trace);
  std::set<int> ranks, iterations;
  std::set<std::string> names;
  for (const Event& event : events) {
    ranks.insert(event.rank);
    iterations.insert(event.iteration);
    names.insert(event.name);
    if (event.name != "shared expert") continue;
    EXPECT_TRUE(
        std::any_of(events.begin(), events.end(),
                    [&](const Event& window) {
                      return (window.name == "rows travel" || window.name == "results travel") &&
                             window.rank == event.rank && window.iteration == event.iteration &&
                             window.layer == event.layer && window.contains(event);
                    }))
        << "rank " << event.rank << " layer " << event.layer;
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(iterations, (std::set<int>{1, 3}));
  EXPECT_THAT(names, IsSupersetOf({"iteration", "attention", "router", "push rows", "wait: rows",
                                   "experts", "shared expert", "wait: results", "reduce", "LM head",
                                   "sampling", "rows travel", "results travel"}));

  expect_nested(events);
}

TEST_F(CommandProfile, VariablesOfTensorRtLlmAreUnderstood) {
  CommandOptions options = generate(small_model(), {"--ranks", "2"});
  options.environment = {{"TLLM_PROFILE_START_STOP", "1-3"}, {"TLLM_TORCH_PROFILE_TRACE", path_}};
  const auto iterations = [&] {
    EXPECT_EQ(run_command(options).exit_code, 0);
    std::set<int> found;
    for (const Event& event : events_of(json::parse(formats::read_file(path_).value()))) {
      found.insert(event.iteration);
    }
    return found;
  };
  EXPECT_EQ(iterations(), (std::set<int>{1, 2}));
  options.environment.emplace_back("WIDEEP_PROFILE_START_STOP", "0-1");  // ours wins
  EXPECT_EQ(iterations(), (std::set<int>{0}));
  options.environment = {{"TLLM_NVTX_DEBUG", "1"}};
  expect_refused(run_command(options), {"TLLM_NVTX_DEBUG=1", "no CUDA"});
  options.environment = {{"TLLM_PROFILE_RECORD_GC", "1"}};
  expect_refused(run_command(options), {"TLLM_PROFILE_RECORD_GC=1", "no garbage collector"});
  options.environment = {{"TLLM_TORCH_PROFILE_TRACE", path_}};
  expect_refused(run_command(options), {"TLLM_TORCH_PROFILE_TRACE", "no iterations given"});
}

TEST_F(CommandProfile, AFileThatCannotBeWrittenIsFoundBeforeTheRun) {
  const CommandEnd end = run_command(generate(
      small_model(), {"--profile-range", "0-1", "--profile-output", "/nowhere/profile.json"}));
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_EQ(end.out, "");
  EXPECT_EQ(end.error_lines().size(), 1u);
  EXPECT_THAT(end.err, HasSubstr("/nowhere/profile.json"));
  EXPECT_THAT(end.err, testing::Not(HasSubstr("model  ")));  // nothing has been loaded
}

TEST_F(CommandProfile, WhatCannotBeProfiledIsSaid) {
  const CommandEnd short_run = profile({"--profile-range", "3-400"});
  EXPECT_EQ(short_run.exit_code, 0);
  EXPECT_THAT(short_run.err, HasSubstr("profile of iterations 3-400: the run had 5 iterations"));
  expect_refused(profile({"--profile-range", "1-2,7"}), {"--profile-range", "found \"7\""});
  expect_refused(profile({}), {"--profile-output", "--profile-range"});
}

}  // namespace
}  // namespace wideep::tests
