// SPDX-License-Identifier: Apache-2.0
// wideep bench rows on a small random model.
#include <gtest/gtest.h>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;

CommandEnd bench_rows(const std::string& dispatch, const std::string& combine) {
  const base::ScratchDirectory scratch;
  const std::string prompts = scratch.file("prompts.jsonl");
  EXPECT_TRUE(formats::write_file(prompts,
                                  "{\"prompt\": \"A small cat sat by the door.\"}\n"
                                  "{\"prompt\": \"Nobody knew whose it was.\"}\n")
                  .ok());
  return run_command(
      {.arguments = {"bench", "rows", "--model", small_model(), "--prompts", prompts,
                     "--dispatch-dtype", dispatch, "--combine-dtype", combine, "--json"}});
}

TEST(CommandBenchRows, ReportsSavedBytesAndLostAccuracy) {
  const CommandEnd end = bench_rows("nvfp4", "nvfp4");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_GT(report.at("places"), 10);
  EXPECT_GT(report.at("mean_kl_nats"), 0.0);
  EXPECT_LT(report.at("mean_kl_nats"), 0.5);
  ASSERT_FALSE(report.at("layers").empty());
  for (const json& layer : report.at("layers")) {
    EXPECT_NEAR(layer.at("snr_dispatched_db").get<double>(), 20.5, 1.5);
    EXPECT_NEAR(layer.at("snr_returned_db").get<double>(), 20.5, 1.5);
    EXPECT_LT(layer.at("bytes").get<double>(), 0.4 * layer.at("bytes_plain").get<double>());
  }
}

TEST(CommandBenchRows, PlainRowsLoseNothing) {
  const CommandEnd end = bench_rows("bf16", "bf16");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report.at("mean_kl_nats"), 0.0);
  EXPECT_EQ(report.at("top1_agreement"), 1.0);
  for (const json& layer : report.at("layers")) {
    EXPECT_TRUE(layer.at("snr_returned_db").is_null());
    EXPECT_EQ(layer.at("bytes"), layer.at("bytes_plain"));
  }
}

// The model's 64 columns fill no group of fp8.
TEST(CommandBenchRows, RowsMayEndWithinAGroup) {
  const CommandEnd end = bench_rows("fp8", "nvfp4");
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_GT(report.at("mean_kl_nats"), 0.0);
}

}  // namespace
}  // namespace wideep::tests
