// SPDX-License-Identifier: Apache-2.0
// wideep figures NAME: each figure on small inputs, its numbers held against a count of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>

#include "command_balance.h"
#include "command_machine.h"
#include "command_model.h"
#include "cost/expert_load.h"
#include "cost/hardware.h"
#include "recordings/balancer_yaml.h"
#include "recordings/routing_log.h"

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
    return Command({.arguments = arguments}).wait(std::chrono::seconds(240));
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

// ---- sent-tokens ----

// The worked example of docs/routing_log.md in two layers, of which layer 4 has it turned round.
recordings::RoutingLog small_log() {
  recordings::RoutingLog log;
  log.model = "tiny";
  log.ep_size = 2;
  log.num_experts = 3;
  log.num_slots = 4;
  log.top_k = 2;
  log.layers = {1, 4};
  const auto iteration = [](int number, int tokens, std::vector<std::vector<int32_t>> sent,
                            std::vector<std::vector<int32_t>> counts) {
    recordings::RoutingLog::Iteration each{.iteration = number, .generated_tokens = tokens};
    each.sent = {sent, {{sent[0][1], sent[0][0]}, {sent[1][1], sent[1][0]}}};
    each.counts = {counts, counts};
    each.critical_path_us = {1, 1};
    return each;
  };
  log.iterations = {iteration(1949, 1, {{1, 1}, {0, 0}}, {{1, 0, 1}, {0, 0, 0}}),
                    iteration(1950, 5, {{4, 2}, {3, 1}}, {{3, 2, 1}, {2, 1, 1}}),
                    iteration(1951, 2, {{1, 1}, {2, 0}}, {{1, 0, 1}, {1, 1, 0}})};
  return log;
}

const json& chart_named(const json& figure, const std::string& part) {
  static const json kNone = json::object();
  for (const json& chart : figure["charts"]) {
    if (chart["title"].get<std::string>().find(part) != std::string::npos) return chart;
  }
  ADD_FAILURE() << "no chart: " << part;
  return kNone;
}

TEST_F(CommandFigures, SentTokensAreThoseOfTheLog) {
  const std::string log = file("long.json");
  ASSERT_TRUE(recordings::write_routing_log(log, small_log()).ok());
  const json shown = figure_json({"sent-tokens", "--routing-log", log, "--iteration", "1950",
                                  "--layer", "1", "--sender", "1"});
  const json& layers = chart_named(shown, "Sent from rank 1, by layer and receiving rank");
  EXPECT_EQ(layers["rows"], json({"1", "4"}));
  EXPECT_EQ(layers["panels"][0]["values"], json::parse("[[3, 1], [1, 3]]"));
  EXPECT_EQ(chart_named(shown, "Sent from rank 1, by layer and expert")["panels"][0]["values"],
            json::parse("[[2, 1, 1], [2, 1, 1]]"));
  const json& ranks = chart_named(shown, "Sent from rank 1 in layer 1, by receiving rank and iter");
  EXPECT_EQ(ranks["rows"], json({"1950", "1951"}));
  EXPECT_EQ(ranks["panels"][0]["values"], json::parse("[[3, 1], [2, 0]]"));
  EXPECT_EQ(chart_named(shown, "from all ranks in layer 1, by expert and")["panels"][0]["values"],
            json::parse("[[5, 3, 2], [2, 1, 1]]"));
  EXPECT_EQ(chart_named(shown, "by expert, all iterations")["series"][0]["y"], json({7, 4, 3}));
  // By hand: ranks receive 7 and 3, then 3 and 1. Without a placement slots are not known.
  const json& uneven = shown["tables"][1]["rows"][0];
  EXPECT_DOUBLE_EQ(uneven[1].get<double>(), 3.5);
  EXPECT_NEAR(uneven[2].get<double>(), (std::sqrt(8.0) + std::sqrt(2.0)) / 2.0, 1e-12);
  EXPECT_NEAR(uneven[3].get<double>(), 0.45, 1e-12);
  EXPECT_TRUE(uneven[4].is_null());
  EXPECT_THAT(shown["notes"].dump(), HasSubstr("--placement"));
}

TEST_F(CommandFigures, SentTokensRefusesWhatIsNotInTheLog) {
  const std::string log = file("log.json");
  ASSERT_TRUE(recordings::write_routing_log(log, small_log()).ok());
  const auto refused = [&](std::vector<std::string> more, const std::string& what) {
    more.insert(more.begin(), {"sent-tokens", "--routing-log", log});
    expect_refused(figure(more), {more[3], what});
  };
  refused({"--iteration", "1948"}, "3 iterations from 1949 to 1951");
  refused({"--layer", "2"}, "1 to 4, found 2");
  refused({"--sender", "2"}, "a rank of 0 to 1");
  refused({"--names", "a,b"}, "as many names as logs (1), found 2");
  refused({"--nodes", "3"}, "a divisor of 2 ranks");
  // Expert 0 is on both ranks, so rank 0 would keep its three pairs for expert 0.
  const std::string wrong = write("wrong.yaml",
                                  "num_slots: 4\ninitial_global_assignments:\n  1: [0, 1, 0, 2]\n"
                                  "  4: [0, 1, 0, 2]\nlayer_updates_per_iter: 0\n");
  refused({"--placement", wrong}, "not the placement of the run");
}

// A run whose experts have replicas: the pairs of an expert's slots are those of the expert, and
// those of a rank's slots are what the rank has received.
TEST_F(CommandFigures, SentTokensFindsTheSlotsOfARun) {
  ASSERT_EQ(balance(plan(csv(), 20)).exit_code, 0);
  const std::string log = file("run.json");
  const CommandEnd end = run_command({.arguments = {"generate",
                                                    "--model",
                                                    small_model(),
                                                    "--ranks",
                                                    "4",
                                                    "--prompt",
                                                    "The cat",
                                                    "--prompt",
                                                    "A dog",
                                                    "--prompt",
                                                    "12345",
                                                    "--prompt",
                                                    "More",
                                                    "--prompt",
                                                    "e",
                                                    "--max-tokens",
                                                    "8",
                                                    "--load-balancer",
                                                    file("plan.yaml"),
                                                    "--routing-log",
                                                    log}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json shown = figure_json({"sent-tokens", "--routing-log", log, "--placement",
                                  file("plan.yaml"), "--layer", "2", "--iterations", "5"});
  const auto read_log = recordings::read_routing_log(log);
  const auto settings = recordings::read_balancer_yaml(
      file("plan.yaml"), {.moe_layers = {1, 2}, .num_experts = kExperts, .ep_size = 4});
  ASSERT_TRUE(read_log.ok() && settings.ok());
  const auto& experts = settings->layers.at(2).slot_to_expert;
  for (const std::string from : {"rank 0", "all ranks"}) {
    const json& slots =
        chart_named(shown, "Sent from " + from + " in layer 2, by slot")["panels"][0]["values"];
    const json& of_experts = chart_named(
        shown, "Sent from " + from + " in layer 2, by expert and")["panels"][0]["values"];
    ASSERT_EQ(slots.size(), 5);
    for (size_t i = 0; i < slots.size(); ++i) {
      std::vector<int64_t> sums(kExperts);
      for (size_t slot = 0; slot < experts.size(); ++slot) {
        sums[static_cast<size_t>(experts[slot])] += slots[i][slot].get<int64_t>();
      }
      EXPECT_EQ(json(sums), of_experts[i]);
    }
  }
  EXPECT_FALSE(shown["tables"][1]["rows"][0][4].is_null());
}

// ---- expert-time ----

// DeepSeek-V3's structure with as many experts as the model that is measured has.
constexpr const char* kDeepSeek = R"({"model_type": "deepseek_v3", "vocab_size": 4096,
    "hidden_size": 1024, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 8, "q_lora_rank": 192, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64, "intermediate_size": 1024,
    "moe_intermediate_size": 512, "n_routed_experts": 256, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "n_group": 8, "topk_group": 4, "first_k_dense_replace": 1,
    "norm_topk_prob": true, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
    "topk_method": "noaux_tc", "max_position_embeddings": 4096, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "moe_layer_freq": 1,
    "hidden_act": "silu", "torch_dtype": "bfloat16"})";

// The first 16 of 256 experts have ten times the tokens of the others: all are on the first rank.
constexpr int kHot = 16;

class CommandFigureExpertTime : public CommandFigures {
 protected:
  std::vector<std::string> arguments() const {
    std::string rows = "iteration,layer";
    for (int e = 0; e < 256; ++e) rows += fmt::format(",e{}", e);
    for (int layer = 1; layer < 3; ++layer) {
      rows += fmt::format("\n0,{}", layer);
      for (int e = 0; e < 256; ++e) rows += e < kHot ? ",1000" : ",100";
    }
    return {"expert-time",
            "--model",
            write("config.json", kDeepSeek),
            "--hardware",
            write("machine.yaml", kMachine),
            "--stats",
            write("load.csv", rows + "\n"),
            "--ranks",
            "2,4,8",
            "--batch",
            "64"};
  }
};

// The slowest rank's time from its rows, which are counted here.
TEST_F(CommandFigureExpertTime, PredictsTheSlowestRank) {
  std::vector<std::string> given = arguments();
  given.push_back("--no-measure");
  const json shown = figure_json(given);
  EXPECT_EQ(shown["charts"].size(), 2);
  const json& rows = shown["tables"][0]["rows"];
  ASSERT_EQ(rows.size(), 3);
  const auto hardware = cost::parse_hardware(kMachine, "machine.yaml");
  ASSERT_TRUE(hardware.ok());
  for (const json& row : rows) {
    const int ranks = row[0].get<int>();
    std::vector<double> choices(256);
    for (int e = 0; e < 256; ++e) {
      choices[static_cast<size_t>(e)] =
          8.0 * (e < kHot ? 1000.0 : 100.0) / (kHot * 1000.0 + (256 - kHot) * 100.0);
    }
    const cost::PlacedLayer in_order(ranks, choices);
    const cost::ExpertShape shape{.hidden = 1024, .intermediate = 512};
    const double seconds =
        cost::slowest_time(*hardware, hardware->experts, shape, in_order, 64.0 * ranks).seconds();
    EXPECT_NEAR(row[1].get<double>(), 2 * 1e3 * seconds, 1e-9) << ranks;
    EXPECT_EQ(row[2], row[5]);                              // what is sent is as much
    EXPECT_LT(row[4].get<double>(), row[1].get<double>());  // balanced
    EXPECT_LT(row[6].get<double>(), row[3].get<double>());  // waits
  }
  EXPECT_LT(rows[2][4].get<double>(), rows[0][4].get<double>());  // with ranks
  const json& series = shown["charts"][0]["series"];
  EXPECT_NEAR(series[2]["y"][1].get<double>(), rows[1][2].get<double>() + rows[1][3].get<double>(),
              1e-12);
  EXPECT_NEAR(shown["charts"][1]["series"][0]["y"][2].get<double>(),
              rows[2][1].get<double>() / rows[2][4].get<double>(), 1e-9);
}

TEST_F(CommandFigureExpertTime, MeasuresRanksOfThisMachine) {
  std::vector<std::string> given = arguments();
  for (const char* more : {"--measured-ranks", "2", "--measured-batch", "4", "--repeat", "1"}) {
    given.push_back(more);
  }
  const json shown = figure_json(given);
  ASSERT_EQ(shown["tables"].size(), 4);
  const json& rows = shown["tables"][2]["rows"];
  ASSERT_EQ(rows.size(), 1);
  for (const json& row : rows) {
    for (size_t i = 1; i < row.size(); ++i) EXPECT_GE(row[i].get<double>(), 0.0);
    EXPECT_GT(row[1].get<double>(), 0.0);
    EXPECT_GT(row[2].get<double>(), 0.0);
  }
  EXPECT_EQ(shown["charts"][2]["series"][0]["y"][0], rows[0][1]);
  EXPECT_EQ(shown["charts"][2]["series"][1]["y"][0], rows[0][4]);
}

TEST_F(CommandFigureExpertTime, RefusesWhatCannotBePredicted) {
  std::vector<std::string> given = arguments();
  given.insert(given.end(), {"--no-measure", "--dtype", "int4"});
  expect_refused(figure(given), {"--dtype: machine has no products of int4"});
  given = arguments();
  given.push_back("--no-measure");
  given[8] = "512";
  expect_refused(figure(given), {"--ranks: expected 2 to 256", "found 512"});
  given[8] = "4,8";
  given.insert(given.end(), {"--ep-size", "4"});
  expect_refused(figure(given), {"--ep-size", "give them with --ranks"});
  given[8] = "4,16";
  given.resize(given.size() - 2);
  expect_refused(figure(given), {"--ranks: machine joins 8 ranks", "found 16"});
}

// ---- pages ----

TEST_F(CommandFigures, PageDrawsEveryChart) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "chromium is not installed: the page's script is not run";
  }
  const std::string log = file("log.json");
  ASSERT_TRUE(recordings::write_routing_log(log, small_log()).ok());
  const json shown = figure_json({"sent-tokens", "--routing-log", log});
  const std::string command = fmt::format(
      "chromium --headless --no-sandbox --disable-gpu --user-data-dir={} --dump-dom file://{} "
      ">{} 2>/dev/null",
      file("profile"), output() + "/sent-tokens.html", file("drawn.html"));
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string page = read("drawn.html");
  for (const json& chart : shown["charts"]) {
    EXPECT_THAT(page, HasSubstr("<h2>" + chart["title"].get<std::string>() + "</h2>"));
  }
  EXPECT_THAT(page, HasSubstr("Drawn by wideep figures sent-tokens"));
  EXPECT_THAT(page, HasSubstr("class=\"column c0\""));
  EXPECT_THAT(page, HasSubstr("class=\"q63\""));
}

}  // namespace
}  // namespace wideep::tests
