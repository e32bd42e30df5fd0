// SPDX-License-Identifier: Apache-2.0
// wideep bench model as a user runs it: output and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

CommandOptions bench_model(const std::vector<std::string>& more) {
  CommandOptions options{.arguments = {"bench", "model", "--threads", "1"}};
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

std::string config_path() { return small_model() + "/config.json"; }

// Small enough to take no time.
std::vector<std::string> quick(std::vector<std::string> source) {
  for (const char* option :
       {"--prompt", "24", "--generate", "3", "--batch", "1,5", "--repeat", "2", "--depth", "4"}) {
    source.emplace_back(option);
  }
  return source;
}

json bench_json(std::vector<std::string> arguments) {
  arguments.emplace_back("--json");
  const CommandEnd end = run_command(bench_model(arguments));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, IsEmpty());
  return json::parse(end.out, nullptr, false);
}

std::vector<std::string> perfect() {
  std::vector<std::string> arguments = quick({"--model", small_model(), "--ranks", "2"});
  arguments.emplace_back("--perfect-router");
  return arguments;
}

void expect_figure(const json& figure) {
  EXPECT_GT(figure.at("low"), 0.0);
  EXPECT_LE(figure.at("low"), figure.at("median"));
  EXPECT_LE(figure.at("median"), figure.at("high"));
}

void expect_sound(const json& test) {
  for (const char* name : {"tokens_per_second", "achieved", "limit", "share"}) {
    SCOPED_TRACE(name);
    expect_figure(test.at(name));
  }
  EXPECT_GT(test.at("operations_per_token"), 0.0);
  EXPECT_GT(test.at("bytes_per_step"), 0.0);
}

TEST(BenchModel, RandomWeightsNeedTheConfigOnly) {
  const json report = bench_json(quick({"--config", config_path(), "--random-weights"}));
  EXPECT_EQ(report.at("ranks"), 1);
  EXPECT_EQ(report.at("dtype"), "bf16");
  EXPECT_EQ(report.at("kv_cache_dtype"), "bf16");
  EXPECT_GT(report.at("limits").at("read_gbps"), 0.0);
  EXPECT_GT(report.at("limits").at("f32_gops"), 0.0);
  const json& tests = report.at("tests");
  ASSERT_EQ(tests.size(), 3u);
  EXPECT_EQ(tests[0].at("name"), "prefill 24");
  EXPECT_EQ(tests[1].at("name"), "decode x1");
  EXPECT_EQ(tests[2].at("name"), "decode x5");
  for (const json& test : tests) expect_sound(test);
  // One token chooses 4 experts per layer; five different tokens choose more, out of 16.
  EXPECT_EQ(tests[1].at("experts_hit_per_layer"), 4.0);
  EXPECT_GT(tests[2].at("experts_hit_per_layer"), 5.0);
  EXPECT_LE(tests[2].at("experts_hit_per_layer"), 16.0);
}

TEST(BenchModel, RanksChooseTheSameExpertsAsOneRank) {
  const auto hit = [](const char* ranks) {
    const json report = bench_json(quick({"--model", small_model(), "--ranks", ranks}));
    json hits;
    for (const json& test : report.at("tests")) {
      if (test.at("kind") != "decode") continue;
      hits.push_back(
          {test.at("name"), test.at("experts_hit_per_layer"), test.at("bytes_per_step")});
    }
    return hits;
  };
  const json one = hit("1");
  EXPECT_EQ(one.size(), 2u);
  EXPECT_EQ(hit("2"), one);
}

TEST(BenchModel, PrintsATable) {
  const CommandEnd end =
      run_command(bench_model(quick({"--model", small_model(), "--random-weights", "--dtype", "f32",
                                     "--kv-cache-dtype", "fp8"})));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.err, IsEmpty());
  EXPECT_THAT(
      end.out,
      AllOf(StartsWith("model   "), HasSubstr("(random weights): 3 layers, 16 experts top 4"),
            HasSubstr("weights f32, "), HasSubstr("KV cache fp8\n"),
            HasSubstr("run     1 rank × 1 thread, "), HasSubstr("\nlimits  memory: read "),
            HasSubstr("\nprefill 24 "), HasSubstr("\ndecode x1 "), HasSubstr("\ndecode x5 ")));
}

TEST(BenchModel, RefusesNoModelOrTwo) {
  expect_refused(run_command(bench_model({})), {"no model: give --model DIR, or --config"});
  expect_refused(run_command(bench_model({"--config", config_path()})),
                 {config_path(), "has no weights; add --random-weights"});
  expect_refused(run_command(bench_model({"--config", config_path(), "--model", small_model()})),
                 {"--model and --config both name the model"});
}

TEST(BenchModel, RefusesBrokenInput) {
  const std::vector<std::string> random = {"--config", config_path(), "--random-weights"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), random.begin(), random.end());
    return run_command(bench_model(more));
  };
  expect_refused(with({"--prompt", "5000"}), {"prefill 5000", "max_position_embeddings 4096"});
  expect_refused(with({"--prompt", "0", "--generate", "0"}), {"nothing to measure"});
  expect_refused(with({"--batch", "1,0"}), {"--batch"});
  expect_refused(with({"--dtype", "bf17"}), {"--dtype", "bf17"});
  expect_refused(with({"--kv-cache-dtype", "int8"}), {"--kv-cache-dtype", "int8"});
  expect_refused(with({"--ranks", "5"}), {"16"});
  expect_refused(run_command(bench_model({"--config", "/no/such.json", "--random-weights"})),
                 {"/no/such.json"});
  const ModelCopy copy;
  copy.write("config.json", "{");
  expect_refused(run_command(bench_model({"--model", copy.path(), "--random-weights"})),
                 {copy.file("config.json")});
}

TEST(CommandBenchModel, APerfectRouterIsNamed) {
  EXPECT_TRUE(bench_json(perfect()).at("perfect_router"));
  CommandOptions variable = bench_model(quick({"--model", small_model(), "--ranks", "2"}));
  variable.environment = {{"ENABLE_PERFECT_ROUTER", "1"}};
  const CommandEnd named = run_command(variable);
  EXPECT_EQ(named.exit_code, 0) << named.err;
  EXPECT_THAT(named.out, HasSubstr("router  perfect: "));
  variable.environment = {{"ENABLE_PERFECT_ROUTER", "yes"}};
  EXPECT_THAT(run_command(variable).err, HasSubstr("ENABLE_PERFECT_ROUTER: expected 0 or 1"));
}

}  // namespace
}  // namespace wideep::tests
