// SPDX-License-Identifier: Apache-2.0
//
// Statistics of slots: what a run with a load balancer did. The same run is also recorded by the
// router's choice (counts of experts) and, in another way, by its routing log (which rank sent how
// much to which): slots must add up to both. A placement that was planned on a skewed load must
// make the ratio smaller than it was before, as TensorRT-LLM's blog does it: record, plan, record
// again, report. A failure is a table "after" of something that the run did not do.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/scratch_directory.h"
#include "command.h"
#include "command_model.h"
#include "command_server.h"
#include "formats/files.h"
#include "recordings/balancer_yaml.h"
#include "recordings/routing_log.h"
#include "recordings/statistics_reader.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using recordings::ExpertStatistics;
using ::testing::HasSubstr;

constexpr int kRanks = 4, kExperts = 16, kSlots = 24, kIterations = 12;

class SlotStatistics : public ::testing::Test {
 protected:
  // Runs with prompts on every rank, and records all iterations in `name` and `name`.json.
  CommandEnd record(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--ranks",
                                          std::to_string(kRanks),
                                          "--max-tokens",
                                          std::to_string(kIterations),
                                          "--expert-statistic-path",
                                          file(name),
                                          "--expert-statistic-iter-range",
                                          fmt::format("0-{}", kIterations),
                                          "--routing-log",
                                          file(name + ".json")};
    for (const char* prompt :
         {"aaaaaaaaaaaaaaaa", "aaaa", "aaaaaaaaaaaaaaaaaaaaaaa", "ab", "aaaaa"}) {
      arguments.insert(arguments.end(), {"--prompt", prompt});
    }
    arguments.insert(arguments.end(), more.begin(), more.end());
    CommandEnd end = run_command(generate(small_model(), arguments));
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return end;
  }
  std::string file(const std::string& name) const { return directory_.file(name); }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(formats::write_file(file(name), text).ok());
  }
  static CommandEnd balance(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "balance");
    return run_command({.arguments = arguments});
  }
  json report(const std::string& path, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"report", "--stats", file(path), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandEnd end = balance(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    return json::parse(end.out, nullptr, false);
  }
  ExpertStatistics read(const std::string& path) const {
    const auto statistics = recordings::read_statistics_directory(file(path));
    EXPECT_TRUE(statistics.ok()) << statistics.status().message();
    return statistics.ok() ? *statistics : ExpertStatistics();
  }
  // A placement for what was recorded in `stats`.
  void plan(const std::string& stats, const std::string& output) const {
    const CommandEnd end = balance({"plan", "--stats", file(stats), "--num-slots",
                                    std::to_string(kSlots), "--output", file(output)});
    EXPECT_EQ(end.exit_code, 0) << end.err;
  }
  // The mean over iterations of max / mean − 1 over ranks, of each layer, by the routing log.
  std::vector<double> ratios_of_log(const std::string& name) const {
    const auto log = recordings::read_routing_log(file(name));
    EXPECT_TRUE(log.ok()) << log.status().message();
    std::vector<double> ratios(log->layers.size(), 0.0);
    for (const auto& iteration : log->iterations) {
      for (size_t layer = 0; layer < ratios.size(); ++layer) {
        std::vector<int64_t> received(kRanks, 0);
        for (const auto& row : iteration.sent[layer]) {
          for (size_t to = 0; to < row.size(); ++to) received[to] += row[to];
        }
        const auto all = std::accumulate(received.begin(), received.end(), int64_t{0});
        ratios[layer] +=
            static_cast<double>(std::ranges::max(received)) * kRanks / static_cast<double>(all) -
            1.0;
      }
    }
    for (double& ratio : ratios) ratio /= static_cast<double>(log->iterations.size());
    return ratios;
  }
  void expect_ratios(const json& report, const std::vector<double>& expected) {
    ASSERT_EQ(report["layers"].size(), expected.size());
    for (size_t layer = 0; layer < expected.size(); ++layer) {
      EXPECT_NEAR(report["layers"][layer]["imbalance_ratio"].get<double>(), expected[layer], 1e-9);
    }
  }

  base::ScratchDirectory directory_;
};

TEST_F(SlotStatistics, ShowWhatAPlacementHasBrought) {
  record("before");
  EXPECT_FALSE(std::filesystem::exists(file("before/slots")));  // no load balancer, no slots
  plan("before", "plan.yaml");
  record("after", {"--load-balancer", file("plan.yaml")});

  const json before = report("before"), after = report("after/slots");
  EXPECT_EQ(before["counts"], "expert");
  EXPECT_EQ(after["counts"], "slot");
  EXPECT_EQ(after["ep_size"], kRanks);
  EXPECT_EQ(after["num_slots"], kSlots);
  EXPECT_EQ(after["num_experts"], kExperts);
  expect_ratios(before, ratios_of_log("before.json"));
  expect_ratios(after, ratios_of_log("after.json"));
  EXPECT_LT(after["average"]["imbalance_ratio"].get<double>(),
            before["average"]["imbalance_ratio"].get<double>());
  // The router has chosen the same as before, whatever the placement.
  EXPECT_EQ(read("after"), read("before"));
  EXPECT_EQ(report("after"), before);

  // By slot: as many as there are, with the same tokens.
  const json slots = report("after/slots", {"--per-expert"});
  EXPECT_EQ(slots["by"], "slot");
  EXPECT_NEAR(slots["average"]["mean"].get<double>() * kSlots,
              after["average"]["mean"].get<double>() * kRanks, 1e-6);
}

// In every iteration and layer, of every sending rank.
TEST_F(SlotStatistics, FoldedByThePlacementAreCountsOfExperts) {
  record("before");
  plan("before", "plan.yaml");
  record("after", {"--load-balancer", file("plan.yaml")});
  const ExpertStatistics experts = read("after"), slots = read("after/slots");
  const auto placement = recordings::read_balancer_yaml(
      file("plan.yaml"),
      {.moe_layers = experts.layers, .num_experts = kExperts, .ep_size = kRanks});
  ASSERT_TRUE(placement.ok()) << placement.status().message();
  ASSERT_EQ(slots.num_experts, kSlots);
  ASSERT_EQ(slots.layers, experts.layers);
  ASSERT_EQ(slots.num_iterations(), kIterations);
  ASSERT_EQ(experts.num_iterations(), kIterations);
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (int layer = 0; layer < slots.num_layers(); ++layer) {
      const std::vector<int32_t>& holds =
          placement->layers.at(slots.layers[static_cast<size_t>(layer)]).slot_to_expert;
      for (int rank = 0; rank < kRanks; ++rank) {
        std::vector<int64_t> folded(kExperts);
        const auto row = slots.row(iteration, layer, rank);
        for (size_t slot = 0; slot < row.size(); ++slot) {
          folded[static_cast<size_t>(holds[slot])] += row[slot];
        }
        EXPECT_THAT(experts.row(iteration, layer, rank), testing::ElementsAreArray(folded));
      }
    }
  }
}

// The placement changes in the range, and with exact_load ranks borrow experts: each iteration has
// what its slots did.
TEST_F(SlotStatistics, OfOnlineBalancingAreRightInEveryIteration) {
  for (const char* more : {"", "exact_load: node\n"}) {
    SCOPED_TRACE(more);
    const std::string name = *more == '\0' ? "online" : "exact";
    write("online.yaml", fmt::format("num_slots: {}\nlayer_updates_per_iter: 2\n{}", kSlots, more));
    record(name, {"--load-balancer", file("online.yaml")});
    expect_ratios(report(name + "/slots"), ratios_of_log(name + ".json"));
    const ExpertStatistics experts = read(name), slots = read(name + "/slots");
    ASSERT_TRUE(slots.slots);
    EXPECT_EQ(slots.slots->num_ranks, kRanks);
    EXPECT_EQ(slots.num_experts, kSlots + kRanks * slots.slots->borrowed_per_rank);
    EXPECT_EQ(slots.slots->borrowed_per_rank > 0, *more != '\0');
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      for (int layer = 0; layer < slots.num_layers(); ++layer) {
        const auto by_expert = experts.iteration_load(iteration, layer);
        const auto by_slot = slots.iteration_load(iteration, layer);
        EXPECT_EQ(std::accumulate(by_slot.begin(), by_slot.end(), int64_t{0}),
                  std::accumulate(by_expert.begin(), by_expert.end(), int64_t{0}));
      }
    }
  }
}

// Pipeline stages have files of their own, and sharded experts one slot for all slices.
TEST_F(SlotStatistics, AreOfEveryLayout) {
  write("slots.yaml", fmt::format("num_slots: {}\n", kSlots));
  const auto run = [&](const std::string& name, const std::string& config) {
    write(name + ".yaml", config + "moe_config:\n  load_balancer: " + file("slots.yaml") + "\n");
    CommandOptions options =
        generate(small_model(), {"--config", file(name + ".yaml"), "--expert-statistic-path",
                                 file(name), "--expert-statistic-iter-range", "0-4"});
    const CommandEnd end = run_command(options);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const ExpertStatistics experts = read(name), slots = read(name + "/slots");
    EXPECT_EQ(slots.layers, experts.layers);
    EXPECT_EQ(slots.ep_size, experts.ep_size);
    for (int layer = 0; layer < slots.num_layers(); ++layer) {
      const auto by_expert = experts.layer_load(layer), by_slot = slots.layer_load(layer);
      EXPECT_EQ(std::accumulate(by_slot.begin(), by_slot.end(), int64_t{0}),
                std::accumulate(by_expert.begin(), by_expert.end(), int64_t{0}));
    }
    return slots.slots->num_ranks;
  };
  EXPECT_EQ(run("stages",
                "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\npipeline_parallel_size: "
                "2\nenable_attention_dp: true\n"),
            2);
  EXPECT_EQ(run("slices",
                "tensor_parallel_size: 4\nmoe_expert_parallel_size: 2\nmoe_tensor_parallel_size: "
                "2\nenable_attention_dp: true\n"),
            2);
  EXPECT_EQ(run("context",
                "tensor_parallel_size: 2\nmoe_expert_parallel_size: 2\ncontext_parallel_size: 2\n"),
            4);
}

// Clients' recordings too.
TEST_F(SlotStatistics, AreInTheDumpsOfAServer) {
  write("slots.yaml", fmt::format("num_slots: {}\n", kSlots));
  Server server(small_model(), {"--ranks", "4", "--load-balancer", file("slots.yaml"),
                                "--expert-statistic-path", file("records")});
  ASSERT_GT(server.port(), 0);
  for (const char* what : {"start", "", "stop", "dump"}) {
    if (*what == '\0') {
      EXPECT_EQ(server.complete({{"prompt", "aaaa"}}).status, 200);
    } else {
      const std::string path = fmt::format("/{}_expert_distribution_record", what);
      EXPECT_EQ(server::ask(server.port(), "POST", path).status, 200);
    }
  }
  const ExpertStatistics experts = read("records/dump-1"), slots = read("records/dump-1/slots");
  EXPECT_EQ(slots.num_experts, kSlots);
  EXPECT_EQ(slots.num_iterations(), experts.num_iterations());
  EXPECT_EQ(std::accumulate(slots.counts.begin(), slots.counts.end(), int64_t{0}),
            std::accumulate(experts.counts.begin(), experts.counts.end(), int64_t{0}));
}

// A planner would take slots for experts.
TEST_F(SlotStatistics, AreRefusedByNameWhereExpertsAreExpected) {
  write("slots.yaml", fmt::format("num_slots: {}\n", kSlots));
  record("run", {"--load-balancer", file("slots.yaml")});
  const std::string slots = file("run/slots");
  const std::vector<std::vector<std::string>> commands = {
      {"plan", "--stats", slots, "--num-slots", "24", "--output", file("plan.yaml")},
      {"compare", "--stats", slots, "--num-slots", "24"},
      {"plan", "--stats", file("run"), "--num-slots", "24", "--output", file("plan.yaml"),
       "--holdout", slots}};
  for (const std::vector<std::string>& command : commands) {
    SCOPED_TRACE(command[0]);
    expect_refused(balance(command), {slots, "expected counts of experts, found counts of slots",
                                      "give " + file("run") + ", which has the experts'"});
  }
  expect_refused(balance({"report", "--stats", slots, "--project", file("slots.yaml")}),
                 {slots, "--project", "the experts' counts, in the folder above"});
  expect_refused(balance({"report", "--stats", slots, "--ep-size", "8"}),
                 {slots, "--ep-size", "the slots lie on 4 ranks"});
}

}  // namespace
}  // namespace wideep::tests
