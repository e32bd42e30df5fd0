// SPDX-License-Identifier: Apache-2.0
// wideep figures NAME: each figure on small inputs, its numbers held against a count of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "command_balance.h"
#include "command_machine.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class CommandFigures : public CommandBalance {
 protected:
  std::string output() const { return file("figures"); }

  CommandEnd figure(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "figures");
    arguments.insert(arguments.end(), {"--output", output()});
    return run_command({.arguments = arguments});
  }

  // The figure's JSON from stdout, which its file has as well, and its page.
  json figure_json(std::vector<std::string> arguments) const {
    const std::string name = arguments[0];
    arguments.push_back("--json");
    const CommandEnd end = figure(arguments);
    EXPECT_EQ(end.exit_code, 0) << end.err;
    const json printed = json::parse(end.out, nullptr, false);
    EXPECT_EQ(json::parse(read("figures/" + name + ".json"), nullptr, false), printed);
    const std::string page = read("figures/" + name + ".html");
    EXPECT_THAT(page, HasSubstr(printed["title"].get<std::string>()));
    EXPECT_THAT(page, HasSubstr("const kLeastChartWidth"));
    EXPECT_EQ(page.find("http"), page.npos) << "loads something";
    EXPECT_EQ(page.find("@DATA@"), page.npos);
    return printed;
  }

  static json small_config() {
    std::ifstream file(small_model() + "/config.json");
    return json::parse(file, nullptr, false);
  }
};

TEST_F(CommandFigures, OutputThatCannotBeWrittenIsRefusedFirst) {
  write("figures", "a file");
  const CommandEnd end = figure({"movable-experts", "--model", "/nowhere", "--hardware", "gb200"});
  expect_refused(end, {output()});
}

// By hand: bytes of three matrices; the link's bandwidth, halved where two ranks share it.
TEST_F(CommandFigures, MovableExpertsShareTheLinkToTheHost) {
  const auto machine = [](int ranks) {
    return fmt::format("{}host_link: {{latency: 1e-5, bandwidth: 8e10, ranks: {}}}\n", kMachine,
                       ranks);
  };
  const json config = small_config();
  const double bytes = 3.0 * config["hidden_size"].get<double>() *
                       config["moe_intermediate_size"].get<double>() * 2.0;
  for (const int ranks : {1, 2}) {
    const json shown = figure_json({"movable-experts", "--model", small_model(), "--hardware",
                                    write("machine.yaml", machine(ranks)), "--dtype", "bf16",
                                    "--iteration-ms", "10,50"});
    const json& series = shown["charts"][0]["series"];
    EXPECT_EQ(series[0]["x"], json({10, 50}));
    EXPECT_NEAR(series[0]["y"][1].get<double>() / (8e10 / ranks * 0.05 / bytes), 1.0, 1e-9);
    EXPECT_NEAR(series[1]["y"][0].get<double>() / (360e9 * 0.01 / bytes), 1.0, 1e-9);
    EXPECT_EQ(series[2]["published"], true);
    EXPECT_EQ(series[2]["y"], json({300}));
  }
}

// The blog's use cases, which are of a model with 58 MoE layers; that of the tests has 2.
TEST_F(CommandFigures, MovableExpertsCountsUseCases) {
  const json shown =
      figure_json({"movable-experts", "--model", small_model(), "--hardware",
                   write("machine.yaml", kMachine), "--dtype", "bf16", "--iterations", "3"});
  const json& rows = shown["tables"][0]["rows"];
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0][1], 8);  // 4 experts of a layer, 2 layers
  EXPECT_EQ(rows[0][2], 3);
  EXPECT_EQ(rows[2][2], 6);
  EXPECT_EQ(rows[2][3], 93);
  EXPECT_THAT(rows[0][4].get<std::string>(), HasSubstr("fits"));
}

}  // namespace
}  // namespace wideep::tests
