// SPDX-License-Identifier: Apache-2.0
// wideep generate when it or one of its ranks gets a signal or is killed: it ends soon, reports the
// reason, and leaves nothing behind.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "command.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 4;

class CommandSignals : public ::testing::Test {
 protected:
  CommandSignals() {
    model_.edit_config([](json& config) { config["max_position_embeddings"] = 1 << 20; });
  }

  // A run over 4 ranks that would take minutes.
  CommandOptions long_run(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"--ranks",      "4",     "--prompt", "A second prompt",
                                          "--max-tokens", "200000"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return generate(model_.path(), arguments);
  }

  // Waits until the run generates; false if its first tokens do not appear. (--json prints nothing
  // before the end.)
  static bool begins_to_print(const Command& command) {
    return wait_until([&] { return command.out().size() > 40; }, 10s * kSlowdown) &&
           command.ranks().size() == kRanks;
  }

  static CommandEnd expect_end_within(Command& command, std::chrono::milliseconds limit) {
    const auto start = Clock::now();
    CommandEnd end = command.wait(10s);
    EXPECT_LT(Clock::now() - start, limit * kSlowdown);
    EXPECT_THAT(command.ranks(), IsEmpty());
    EXPECT_THAT(abandoned_shared_memory(shared_memory_before_), IsEmpty());
    return end;
  }

  ModelCopy model_;
  static inline const std::vector<std::string> shared_memory_before_ = list_shared_memory();
};

TEST_F(CommandSignals, SharedMemoryHasNoName) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  for (const pid_t rank : command.ranks()) {
    std::stringstream maps;
    maps << std::ifstream(fmt::format("/proc/{}/maps", rank)).rdbuf();
    EXPECT_THAT(maps.str(), HasSubstr("memfd:"));
    EXPECT_EQ(maps.str().find("/dev/shm/"), std::string::npos) << maps.str();
  }
}

TEST_F(CommandSignals, InterruptEndsTheRunWithItsTexts) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  command.send(SIGINT);
  const CommandEnd end = expect_end_within(command, 1s);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.error_lines(), SizeIs(1)) << end.err;
  EXPECT_THAT(end.err, HasSubstr("interrupted"));
  EXPECT_THAT(end.out, StartsWith("--- prompt 0 ---\nThe cat"));
  EXPECT_THAT(end.out, HasSubstr(" [ended early]\n\n--- prompt 1 ---\nA second prompt"));
  EXPECT_THAT(end.out, HasSubstr("imbalance ratio"));
}

// As at a terminal, where the signal reaches every process of the group.
TEST_F(CommandSignals, InterruptOfTheWholeGroup) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  ::kill(-command.pid(), SIGINT);
  const CommandEnd end = expect_end_within(command, 1s);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.error_lines(), SizeIs(1)) << end.err;
}

TEST_F(CommandSignals, InterruptedJsonIsWhole) {
  Command command(long_run({"--json"}));
  ASSERT_TRUE(wait_until([&] { return command.ranks().size() == kRanks; }, 10s * kSlowdown));
  std::this_thread::sleep_for(500ms * kSlowdown);
  command.send(SIGINT);
  const CommandEnd end = expect_end_within(command, 1s);
  EXPECT_EQ(end.exit_code, 130);
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object()) << end.out.substr(0, 200);
  EXPECT_EQ(report["results"][1]["finish_reason"], "not_finished");
  EXPECT_GT(report["results"][1]["tokens"].size(), 1u);
}

TEST_F(CommandSignals, TerminateEndsTheRun) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  command.send(SIGTERM);
  const CommandEnd end = expect_end_within(command, 2s);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.out, HasSubstr("[ended early]"));
}

// As `timeout` and service managers do.
TEST_F(CommandSignals, TerminateOfTheWholeGroup) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  ::kill(-command.pid(), SIGTERM);
  const CommandEnd end = expect_end_within(command, 2s);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.error_lines(), SizeIs(1)) << end.err;
  EXPECT_THAT(end.out, HasSubstr("[ended early]"));
}

// A rank hangs, as under a debugger: the interrupt still ends the run.
TEST_F(CommandSignals, InterruptWhileARankHangs) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  ::kill(command.ranks()[2], SIGSTOP);
  std::this_thread::sleep_for(100ms);
  command.send(SIGINT);
  const CommandEnd end = expect_end_within(command, 1500ms);
  EXPECT_EQ(end.exit_code, 130);
  EXPECT_THAT(end.out, HasSubstr("[ended early]"));
}

TEST_F(CommandSignals, HangingRankRunsIntoTheDeadline) {
  Command command(long_run({"--timeout", fmt::format("{}", 0.5 * kSlowdown)}));
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  ::kill(command.ranks()[2], SIGSTOP);
  const CommandEnd end = expect_end_within(command, 4s);
  EXPECT_EQ(end.exit_code, 1);
  ASSERT_THAT(end.error_lines(), SizeIs(1)) << end.err;
  EXPECT_THAT(end.err, HasSubstr("rank 2"));
  EXPECT_THAT(end.err, HasSubstr("iteration"));
}

TEST_F(CommandSignals, KilledRankIsNamed) {
  for (const int rank : {0, 3}) {
    SCOPED_TRACE(rank);
    Command command(long_run());
    ASSERT_TRUE(begins_to_print(command)) << command.err();
    const pid_t victim = command.ranks()[rank];
    ::kill(victim, SIGKILL);
    const CommandEnd end = expect_end_within(command, 3s);
    EXPECT_EQ(end.exit_code, 1);
    ASSERT_THAT(end.error_lines(), SizeIs(1)) << end.err;
    EXPECT_THAT(end.error_lines()[0],
                HasSubstr(fmt::format("rank {} (process {}) was ended by signal 9", rank, victim)));
    EXPECT_THAT(end.out, HasSubstr("[ended early]"));
  }
}

// A rank of either pipeline stage is killed: the ranks of the other stage end as soon as its own.
TEST_F(CommandSignals, KilledRankOfAPipelineStage) {
  const std::string config = model_.path() + "/stages.yaml";
  std::ofstream(config) << "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\n"
                           "enable_attention_dp: true\npipeline_parallel_size: 2\n";
  for (const int rank : {1, 2}) {
    SCOPED_TRACE(rank);
    Command command(generate(model_.path(), {"--config", config, "--prompt", "A second prompt",
                                             "--max-tokens", "200000"}));
    ASSERT_TRUE(begins_to_print(command)) << command.err();
    ::kill(command.ranks()[rank], SIGKILL);
    const CommandEnd end = expect_end_within(command, 3s);
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(end.err, HasSubstr(fmt::format("rank {} (process", rank)));
    EXPECT_THAT(end.err, HasSubstr("was ended by signal 9"));
  }
  Command command(generate(model_.path(), {"--config", config, "--prompt", "A second prompt",
                                           "--max-tokens", "200000"}));
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  command.send(SIGINT);
  EXPECT_EQ(expect_end_within(command, 1s).exit_code, 130);
}

// The host pool of online balancing is shared memory too, and its threads are the ranks' own.
TEST_F(CommandSignals, NothingIsLeftOfOnlineBalancing) {
  const std::string balancer = model_.path() + "/online.yaml";
  std::ofstream(balancer) << "num_slots: 24\nlayer_updates_per_iter: 2\n";
  for (const bool all_ranks : {false, true}) {
    SCOPED_TRACE(all_ranks);
    Command command(long_run({"--load-balancer", balancer}));
    ASSERT_TRUE(begins_to_print(command)) << command.err();
    const std::vector<pid_t> ranks = command.ranks();
    for (const pid_t rank : ranks) {
      if (all_ranks || rank == ranks[1]) ::kill(rank, SIGKILL);
    }
    const CommandEnd end = expect_end_within(command, 3s);
    EXPECT_EQ(end.exit_code, 1);
    EXPECT_THAT(end.err, HasSubstr("was ended by signal 9"));
  }
  Command command(long_run({"--load-balancer", balancer}));
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  command.send(SIGINT);
  EXPECT_EQ(expect_end_within(command, 1s).exit_code, 130);
}

TEST_F(CommandSignals, KilledParentTakesItsRanksAlong) {
  Command command(long_run());
  ASSERT_TRUE(begins_to_print(command)) << command.err();
  command.send(SIGKILL);
  EXPECT_EQ(command.wait().exit_code, 128 + SIGKILL);
  EXPECT_TRUE(wait_until([&] { return command.ranks().empty(); }, 1s * kSlowdown));
  EXPECT_THAT(abandoned_shared_memory(shared_memory_before_), IsEmpty());
}

// Killed before the ranks compute, even before they exist.
TEST_F(CommandSignals, KilledParentAtAnyMoment) {
  for (const auto delay : {1ms, 5ms, 10ms, 15ms, 20ms, 30ms, 45ms}) {
    Command command(long_run());
    std::this_thread::sleep_for(delay);
    command.send(SIGKILL);
    command.wait();
    EXPECT_TRUE(wait_until([&] { return command.ranks().empty(); }, 1s * kSlowdown))
        << delay.count() << " ms";
  }
}

}  // namespace
}  // namespace wideep::tests
