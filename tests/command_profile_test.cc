// SPDX-License-Identifier: Apache-2.0
// wideep generate --profile-range: a Chrome trace of every rank's steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/sanitized.h"
#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Lt;

struct Event {
  std::string name;
  int rank, lane, iteration, layer;
  int64_t detail;  // an expert, or bytes; −1: none
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
                      args.value("layer", -1), args.value("expert", args.value("bytes", -1)), start,
                      start + length});
  }
  return events;
}

bool any_of(const std::vector<Event>& events, const std::function<bool(const Event&)>& which) {
  return std::any_of(events.begin(), events.end(), which);
}

std::vector<Event> named(const std::vector<Event>& events, const std::string& name) {
  std::vector<Event> found;
  std::copy_if(events.begin(), events.end(), std::back_inserter(found),
               [&](const Event& event) { return event.name == name; });
  return found;
}

class CommandProfile : public testing::Test {
 protected:
  CommandEnd profile(std::vector<std::string> more) {
    more.insert(more.end(), {"--ranks", "4", "--profile-output", path_});
    return run_command(generate(small_model(), more));
  }

  const base::ScratchDirectory directory_;
  const std::string path_ = directory_.file("profile.json");
};

// Times are written to thousandths of a microsecond.
constexpr double kRounding = 0.002;

// Expects that any two events of a thread are disjoint or one lies inside the other.
void expect_nested(const std::vector<Event>& events) {
  std::map<std::pair<int, int>, std::vector<Event>> lanes;
  for (const Event& event : events) lanes[{event.rank, event.lane}].push_back(event);
  for (auto& [lane, all] : lanes) {
    std::sort(all.begin(), all.end(), [](const Event& a, const Event& b) {
      return std::pair(a.start, -a.end) < std::pair(b.start, -b.end);
    });
    std::vector<Event> around;  // events that have not ended yet, outermost first
    for (const Event& event : all) {
      while (!around.empty() && around.back().end <= event.start + kRounding) around.pop_back();
      if (!around.empty()) {
        EXPECT_LE(event.end, around.back().end + kRounding)
            << around.back().name << " and " << event.name;
      }
      around.push_back(event);
    }
  }
}

TEST_F(CommandProfile, ShowsTheSharedExpertDuringDispatch) {
  const CommandEnd end = profile({"--profile-range", "1-2,3-4", "--max-tokens", "5"});
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
    const auto is_over_it = [&](const Event& window) {
      return (window.name == "rows travel" || window.name == "results travel") &&
             window.rank == event.rank && window.iteration == event.iteration &&
             window.layer == event.layer && window.contains(event);
    };
    EXPECT_TRUE(any_of(events, is_over_it)) << "rank " << event.rank << " layer " << event.layer;
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(iterations, (std::set<int>{1, 3}));
  EXPECT_THAT(names, IsSupersetOf({"iteration", "attention", "router", "push rows", "wait: rows",
                                   "experts", "shared expert", "wait: results", "reduce", "LM head",
                                   "sampling", "rows travel", "results travel"}));

  expect_nested(events);
}

// Policy trt moves experts whenever it can, but on a busy machine its threads may not run at all.
TEST_F(CommandProfile, ShowsTheBalancersThreads) {
  const std::string balancer = directory_.file("balancer.yaml");
  std::ofstream(balancer) << "num_slots: 24\nlayer_updates_per_iter: 1\nupdate_policy: trt\n";
  std::vector<Event> events;
  for (int run = 0; run < 40 && named(events, "switch layer").empty(); ++run) {
    const CommandEnd end =
        profile({"--profile-range", "0-300", "--max-tokens", "300", "--load-balancer", balancer});
    ASSERT_EQ(end.exit_code, 0) << end.err;
    events = events_of(json::parse(formats::read_file(path_).value()));
  }
  const std::vector<Event> switches = named(events, "switch layer");
  ASSERT_FALSE(switches.empty());
  for (const Event& each : switches) {
    EXPECT_THAT(each.layer, AnyOf(1, 2));
    const auto inside = [&](const Event& event) {
      return event.rank == each.rank && event.lane == each.lane && event.contains(each);
    };
    EXPECT_TRUE(any_of(named(events, "start of iteration"), inside));
    const auto ended = [&](const Event& event) {
      return event.layer == each.layer && event.end <= each.start;
    };
    // A thread that publishes a plan, or that its copies are complete, may lose its processor
    // before its span ends, while others already act on it. Only copies end before they are
    // published.
    const auto had_begun = [&](const Event& event) {
      return event.layer == each.layer && event.start <= each.start;
    };
    EXPECT_TRUE(any_of(named(events, "plan layer"), ended));
    EXPECT_TRUE(any_of(named(events, "post plan"), had_begun));
    EXPECT_TRUE(any_of(named(events, "copy layer"), had_begun));
    for (const Event& copy : named(events, "copy expert")) {
      if (copy.rank == each.rank && had_begun(copy)) {
        EXPECT_LE(copy.end, each.start + kRounding);
      }
    }
  }
  for (const Event& copy : named(events, "copy expert")) {
    EXPECT_THAT(copy.detail, AllOf(Ge(0), Lt(16)));
    EXPECT_TRUE(any_of(named(events, "copy layer"), [&](const Event& layer) {
      return layer.rank == copy.rank && layer.layer == copy.layer && layer.contains(copy);
    }));
  }
  for (const Event& plan : named(events, "plan layer")) EXPECT_EQ(plan.rank, 0);
  expect_nested(events);
}

TEST_F(CommandProfile, ReadsTensorRtLlmsVariables) {
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
  options.environment.emplace_back("WIDEEP_PROFILE_START_STOP", "0-1");  // wins over TLLM_...
  EXPECT_EQ(iterations(), (std::set<int>{0}));
  for (const char* name : {"TLLM_TORCH_PROFILE_TRACE", "TLLM_PROFILE_RECORD_GC"}) {
    options.environment = {{name, name == std::string("TLLM_PROFILE_RECORD_GC") ? "1" : path_}};
    expect_refused(run_command(options), {name, "no iterations given"});
  }
  for (const char* name :
       {"TLLM_PROFILE_RECORD_GC", "TLLM_NVTX_DEBUG", "TLLM_LLMAPI_ENABLE_NVTX"}) {
    options.environment = {{name, "yes"}};
    expect_refused(run_command(options), {name, "expected 0 or 1, found yes"});
  }
}

TEST_F(CommandProfile, ShowsAllocations) {
  if (base::is_command_sanitized()) GTEST_SKIP() << "sanitizers have an operator new of their own";
  CommandOptions options = generate(
      small_model(), {"--ranks", "2", "--profile-range", "1-3", "--profile-output", path_});
  const auto run = [&] {
    const CommandEnd end = run_command(options);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return events_of(json::parse(formats::read_file(path_).value()));
  };
  EXPECT_TRUE(named(run(), "allocation").empty());
  options.environment = {{"TLLM_PROFILE_RECORD_GC", "1"}};
  const std::vector<Event> events = run();
  for (const Event& event : named(events, "allocation")) {
    EXPECT_THAT(event.iteration, AnyOf(1, 2));
    EXPECT_GE(event.detail, 0);
  }
  // Every iteration allocates memory for its own record.
  for (const Event& iteration : named(events, "iteration")) {
    EXPECT_TRUE(any_of(named(events, "allocation"), [&](const Event& event) {
      return event.rank == iteration.rank && event.lane != iteration.lane &&
             iteration.contains(event);
    }));
  }
  expect_nested(events);
}

#ifdef WIDEEP_NVTX_LOG

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// The calls that a profiler receives through NVTX (nvtx_log/nvtx_log.cc): the lines of each thread.
class CommandNvtx : public CommandProfile {
 protected:
  std::vector<std::vector<std::string>> nvtx_lines(const std::string& variable) {
    CommandOptions options = generate(small_model(), {"--ranks", "2", "--max-tokens", "3"});
    options.environment = {{variable, "1"},
                           {"NVTX_INJECTION64_PATH", WIDEEP_NVTX_LOG},
                           {"NVTX_LOG_DIRECTORY", logs_.path()}};
    const CommandEnd end = run_command(options);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    std::vector<std::vector<std::string>> threads;
    for (const auto& entry : std::filesystem::directory_iterator(logs_.path())) {
      std::ifstream file(entry.path());
      auto& lines = threads.emplace_back();
      for (std::string line; std::getline(file, line);) lines.push_back(line);
    }
    return threads;
  }

 private:
  const base::ScratchDirectory logs_;
};

TEST_F(CommandNvtx, IterationsAreRanges) {
  const std::vector<std::string> iterations = {
      "domain wideep", "push iteration 0", "pop", "push iteration 1",
      "pop",           "push iteration 2", "pop"};
  EXPECT_THAT(nvtx_lines("TLLM_LLMAPI_ENABLE_NVTX"), ElementsAre(iterations, iterations));
}

TEST_F(CommandNvtx, AtDebugLevelAllSpansAre) {
  const auto threads = nvtx_lines("TLLM_NVTX_DEBUG");
  EXPECT_EQ(threads.size(), 2u);
  for (const std::vector<std::string>& lines : threads) {
    EXPECT_THAT(lines, IsSupersetOf({"push iteration 2", "push attention, layer 0",
                                     "push router, layer 1", "push experts, layer 2",
                                     "push wait: results, layer 2", "push sampling"}));
    std::vector<std::string> around;
    for (const std::string& line : lines) {
      if (line == "pop") {
        ASSERT_FALSE(around.empty());
        around.pop_back();
      } else if (line.starts_with("push ")) {
        if (line.ends_with("layer 2")) {
          ASSERT_FALSE(around.empty());
          EXPECT_THAT(around[0], StartsWith("push iteration "));
        }
        around.push_back(line);
      }
    }
    EXPECT_THAT(around, IsEmpty());
  }
}

// The usual case in tests: a machine without a driver.
TEST_F(CommandNvtx, WarnsOnceIfTheProfilerCannotBeReached) {
  const CommandEnd end = profile({"--profile-range", "0-1,2-3"});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a driver";
  const std::string warning = "warning: cudaGetDeviceCount: ";
  EXPECT_THAT(end.err, HasSubstr(warning));
  EXPECT_EQ(end.err.find(warning), end.err.rfind(warning));
}

#else

TEST_F(CommandProfile, NvtxNeedsABuildWithCuda) {
  CommandOptions options = generate(small_model());
  for (const char* name : {"TLLM_NVTX_DEBUG", "TLLM_LLMAPI_ENABLE_NVTX"}) {
    options.environment = {{name, "1"}};
    expect_refused(run_command(options), {name, "no CUDA", "WIDEEP_CUDA=ON"});
  }
}

#endif

TEST_F(CommandProfile, RefusesAFileThatCannotBeWritten) {
  const CommandEnd end = run_command(generate(
      small_model(), {"--profile-range", "0-1", "--profile-output", "/nowhere/profile.json"}));
  expect_refused(end, {"--profile-output: /nowhere/profile.json", "No such file"});
}

TEST_F(CommandProfile, ReportsRangesThatCannotBeProfiled) {
  const CommandEnd short_run = profile({"--profile-range", "3-400", "--max-tokens", "5"});
  EXPECT_EQ(short_run.exit_code, 0);
  EXPECT_THAT(short_run.err, HasSubstr("profile of iterations 3-400: the run had 5 iterations"));
  expect_refused(profile({"--profile-range", "1-2,7"}), {"--profile-range", "found \"7\""});
  expect_refused(profile({}), {"--profile-output", "--profile-range"});
}

}  // namespace
}  // namespace wideep::tests
