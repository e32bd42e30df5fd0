// SPDX-License-Identifier: Apache-2.0
// wideep figures optimizations on a model of three small layers, which has all that it measures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "command_figure.h"
#include "command_model.h"
#include "random_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::vector<std::string> short_runs(const std::string& config) {
  return {"optimizations",
          "--config",
          config,
          "--prompt",
          "9",
          "--context",
          "70",
          "--batch",
          "2",
          "--steps",
          "2",
          "--tokens",
          "3",
          "--rounds",
          "1"};
}

TEST(CommandFigureOptimizations, MeasuresEachWithoutAndWithIt) {
  const base::ScratchDirectory directory;
  const json shown = drawn_figure(short_runs(small_model() + "/config.json"), directory);
  std::map<std::string, std::set<std::string>> tests;
  for (const json& row : shown["tables"][0]["rows"]) {
    tests[row[0]].insert(row[1]);
    EXPECT_GT(row[2], 0.0);
    EXPECT_GT(row[3], 0.0);
    // One round: the ratio is that of both times.
    EXPECT_NEAR(row[4].get<double>(), row[2].get<double>() / row[3].get<double>(), 1e-9);
    EXPECT_EQ(row[4], row[5]);
    EXPECT_EQ(row[4], row[6]);
  }
  const std::set<std::string> of_models = {"prefill 9", "decode x2"};
  EXPECT_EQ(tests.at("fp4-output"), of_models);
  EXPECT_EQ(tests.at("fp4-combine"), of_models);
  EXPECT_EQ(tests.at("fp8-cache"), (std::set<std::string>{"prefill 70", "decode x2"}));
  EXPECT_EQ(tests.at("together"), of_models);
  EXPECT_EQ(tests.at("separate-qkv").size(), 1u);
  EXPECT_EQ(tests.at("fused-add").size(), 1u);
  EXPECT_EQ(shown["charts"][0]["categories"].size(), shown["tables"][0]["rows"].size());

  json config = json::parse(*formats::read_file(small_model() + "/config.json"), nullptr, false);
  const double hidden = config["hidden_size"], heads = config["num_attention_heads"],
               key = config["qk_nope_head_dim"].get<double>() +
                     config["qk_rope_head_dim"].get<double>();
  std::map<std::string, std::pair<double, double>> bytes;
  for (const json& row : shown["tables"][1]["rows"]) bytes[row[0]] = {row[2], row[3]};
  EXPECT_EQ(bytes.at("fp4-combine").first, 2 * hidden);
  EXPECT_LT(bytes.at("fp4-combine").second, hidden);
  // NVFP4 has at most 4.5 bits a weight and room at the ends of panels.
  EXPECT_LT(bytes.at("fp4-output").second, 0.5 * bytes.at("fp4-output").first);
  EXPECT_EQ(bytes.at("fp8-cache").second, 0.5 * bytes.at("fp8-cache").first);
  EXPECT_EQ(bytes.at("separate-qkv").first,
            heads * (6 * key + 2 * config["v_head_dim"].get<double>()));
}

TEST(CommandFigureOptimizations, SaysWhatAShapeLacks) {
  const base::ScratchDirectory directory, qwen;
  write_random_model(qwen.path(), {.family = "qwen3_moe"});
  const std::string config = qwen.file("config.json");
  std::vector<std::string> arguments = short_runs(config);
  arguments.insert(arguments.end(), {"--only", "fp4-combine,fused-add,separate-qkv"});
  const json shown = drawn_figure(arguments, directory);
  EXPECT_EQ(shown["tables"][0]["rows"].size(), 2u);
  EXPECT_THAT(shown["notes"][0].get<std::string>(), HasSubstr("separate-qkv is not measured"));
  EXPECT_THAT(shown["notes"][1].get<std::string>(), HasSubstr("a shared expert"));
  arguments.insert(arguments.end(), {"--latent-config", small_model() + "/config.json"});
  EXPECT_EQ(drawn_figure(arguments, directory)["tables"][0]["rows"].size(), 4u);

  const auto refused = [&](const std::vector<std::string>& more,
                           const std::vector<std::string>& parts) {
    std::vector<std::string> all = {"figures", "optimizations", "--output",
                                    directory.file("figures")};
    all.insert(all.end(), more.begin(), more.end());
    expect_refused(run_command({.arguments = all}), parts);
  };
  refused({"--config", config, "--only", "fused-add"}, {"fused-add", "a shared expert"});
  refused({"--config", config, "--latent-config", config}, {"--latent-config", "neither"});
  refused({"--config", small_model() + "/config.json", "--layers", "1"},
          {"no experts", "raise --layers"});
  refused({"--config", "/nowhere/config.json"}, {"/nowhere/config.json"});
}

}  // namespace
}  // namespace wideep::tests
