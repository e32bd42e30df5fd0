// SPDX-License-Identifier: Apache-2.0
// wideep bench ep as a user runs it: output and errors.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "command.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Small enough to take no time.
CommandOptions bench_ep(const std::vector<std::string>& more) {
  CommandOptions options{
      .arguments = {"bench", "ep", "--experts", "16", "--repeat", "2", "--block", "1"}};
  const auto add = [&](const std::string& option, const std::string& value) {
    if (std::find(more.begin(), more.end(), option) != more.end()) return;
    options.arguments.insert(options.arguments.end(), {option, value});
  };
  add("--hidden", "256");
  add("--top-k", "4");
  options.arguments.insert(options.arguments.end(), more.begin(), more.end());
  return options;
}

TEST(CommandBenchEp, MeasuresEveryTestAndItsCopies) {
  const CommandEnd end = run_command(bench_ep({"--ranks", "4", "--tokens", "1,5", "--strategy",
                                               "allgather", "--routing", "spread", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  ASSERT_EQ(report["tests"].size(), 3u);  // and the empty round
  EXPECT_EQ(report["tests"][0]["tokens"], 0);
  for (const json& test : report["tests"]) {
    EXPECT_GT(test["round_us"]["median"], 0.0);
    EXPECT_LE(test["round_us"]["low"], test["round_us"]["high"]);
    EXPECT_FALSE(test.contains("mpi"));
  }
  const json& five = report["tests"][2];
  EXPECT_GT(five["copy_us"]["median"], 0.0);
  EXPECT_EQ(five["strategy"], "allgather");
  // All-gather: one published row, and 4 results, of which one is already in the place of the sum.
  EXPECT_EQ(five["bytes"], 4 * 5 * (1 + 3) * 512);
}

TEST(CommandBenchEp, EveryFormWithEveryCombine) {
  const CommandEnd end =
      run_command(bench_ep({"--tokens", "3", "--strategy", "dispatch", "--dtype", "bf16,fp8",
                            "--combine-dtype", "bf16,nvfp4", "--combine", "exact,reduced"}));
  EXPECT_EQ(end.exit_code, 0) << end.err;
  for (const char* combine : {"exact  ", "reduced"}) {
    for (const char* form : {"bf16       bf16 ", "fp8 0.531  nvfp4 0.312 "}) {
      EXPECT_THAT(end.out, HasSubstr(fmt::format("     3 dispatch  {} {}", combine, form)));
    }
  }
}

// Its bounds are those of the formats: many ranks and choices, both sums.
TEST(CommandBenchEp, RightSumsInEveryFormatAreAccepted) {
  for (const char* sum : {"row", "residual"}) {
    for (const char* combine : {"exact", "reduced"}) {
      const CommandEnd end = run_command(bench_ep(
          {"--ranks", "8", "--top-k", "8", "--tokens", "40", "--dtype", "bf16,bf16,fp8,nvfp4",
           "--combine-dtype", "bf16,fp8,fp8,nvfp4", "--sum", sum, "--combine", combine}));
      EXPECT_EQ(end.exit_code, 0) << sum << ", " << combine << ": " << end.err;
    }
  }
}

TEST(CommandBenchEp, WritesResultsInEachRound) {
  // Only the rounds write results here, and the sums are checked before the measurement: a wrong
  // result would fail the command.
  const CommandEnd made =
      run_command(bench_ep({"--tokens", "3", "--dtype", "bf16,bf16", "--combine-dtype",
                            "bf16,nvfp4", "--combine", "exact,reduced", "--results", "made"}));
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("; results made in rounds; sums as bf16 rows"));
  const CommandEnd ready = run_command(bench_ep({"--tokens", "3"}));
  EXPECT_THAT(ready.out, Not(HasSubstr("results made")));
}

TEST(CommandBenchEp, SweepsGroups) {
  const CommandEnd end =
      run_command(bench_ep({"--sweep-ranks", "2,4,8", "--tokens", "2", "--strategy", "dispatch",
                            "--routing", "spread", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out);
  ASSERT_EQ(report["groups"].size(), 3u);
  EXPECT_FALSE(report["groups"][0].contains("relative"));  // fewer ranks than experts per token
  EXPECT_EQ(report["groups"][1]["relative"], 1.0);
  EXPECT_GT(report["groups"][2]["cpu_us"]["median"], 0.0);
  // Each token's experts are on 4 ranks: 4 rows of 512 bytes in dispatch and in combine, except to
  // its own rank.
  EXPECT_EQ(report["groups"][1]["bytes_per_rank"], 2 * 6 * 512);
  EXPECT_GE(report["groups"][2]["bytes_per_rank"], 2 * 6 * 512);
  EXPECT_LE(report["groups"][2]["bytes_per_rank"], 2 * 8 * 512);
}

TEST(CommandBenchEp, ComparesWithMpi) {
  const char* named = std::getenv("WIDEEP_BINARY");
  const std::filesystem::path binary = named == nullptr ? WIDEEP_BINARY : named;
  const auto program = binary.parent_path() / "wideep_mpi_baseline";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "built without MPI: no " << program;
  const CommandEnd end = run_command(
      bench_ep({"--tokens", "2", "--baseline", "mpi", "--combine", "exact,reduced", "--json"}));
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json tests = json::parse(end.out)["tests"];
  const json& exact = tests[1]["mpi"];
  const json& reduced = tests[2]["mpi"];
  EXPECT_EQ(exact.size(), 2u);
  EXPECT_EQ(reduced.size(), 1u);
  for (const json& peer : {exact["per-expert"], exact["once-per-rank"], reduced["per-rank"]}) {
    EXPECT_GT(peer["round_us"]["median"], 0.0);
    EXPECT_GT(peer["ratio"]["median"], 0.0);
    EXPECT_GT(peer["ratio_of_means"]["median"], 0.0);
  }
}

TEST(CommandBenchEp, RefusesImpossibleOptions) {
  expect_refused(run_command(bench_ep({"--ranks", "3"})), {"--experts", "3 ranks", "found 16"});
  expect_refused(run_command(bench_ep({"--top-k", "17"})), {"--top-k", "16 experts", "found 17"});
  expect_refused(run_command(bench_ep({"--baseline", "mpi", "--dtype", "fp8"})),
                 {"--baseline mpi", "bf16", "fp8"});
  expect_refused(run_command(bench_ep({"--baseline", "mpi", "--results", "made"})),
                 {"--results made", "--baseline mpi"});
  expect_refused(run_command(bench_ep({"--sweep-ranks", "2,4"})), {"--sweep-ranks", "found 4"});
  expect_refused(run_command(bench_ep({"--dtype", "bf16,fp8", "--combine-dtype", "bf16"})),
                 {"--combine-dtype", "expected as many values as --dtype has (2)", "found 1"});
  expect_refused(
      run_command(bench_ep({"--ranks", "16", "--hidden", "1048576", "--tokens", "1000000"})),
      {"--tokens", "1000000", "16 ranks"});
}

}  // namespace
}  // namespace wideep::tests
