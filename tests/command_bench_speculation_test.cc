// SPDX-License-Identifier: Apache-2.0
// wideep bench speculation on a small random model, and speculation in generate's output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command.h"
#include "command_model.h"
#include "formats/files.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(CommandBenchSpeculation, ComparesTurnsBatchesAndDrafters) {
  const base::ScratchDirectory scratch;
  const std::string prompts = scratch.file("prompts.jsonl"), page = scratch.file("page.html");
  ASSERT_TRUE(formats::write_file(prompts, "{\"prompt\": \"ab ab ab ab ab\"}\n").ok());
  const CommandEnd end =
      run_command({.arguments = {"bench", "speculation", "--model", small_model(), "--prompts",
                                 prompts, "--batch", "1,2", "--max-tokens", "20", "--rounds", "1",
                                 "--drafters", "auto,SA,NGram", "--html", page, "--json"}});
  ASSERT_EQ(end.exit_code, 0) << end.err;
  const json report = json::parse(end.out, nullptr, false);
  ASSERT_EQ(report.at("cells").size(), 12u);
  for (const json& cell : report.at("cells")) {
    EXPECT_GT(cell.at("tokens_per_second"), 0.0);
    EXPECT_EQ(cell.at("ratios").size(), 1u);
    int64_t accepted = 0;
    for (size_t i = 0; i < cell.at("accepted_histogram").size(); ++i) {
      accepted += static_cast<int64_t>(i) * cell["accepted_histogram"][i].get<int64_t>();
    }
    EXPECT_EQ(accepted, cell.at("num_accepted_draft_tokens"));
    double tokens = 0;
    for (const json& step : cell.at("steps"))
      tokens += step[0].get<double>() * step[1].get<double>();
    // Without the first token of each request, which came with the prompt.
    EXPECT_NEAR(tokens, 19.0 * cell.at("batch").get<double>(), 1e-6);
  }
  const auto html = formats::read_file(page);
  ASSERT_TRUE(html.ok());
  EXPECT_THAT(*html, HasSubstr("\"drafter\":\"auto\""));
  EXPECT_EQ(html->find("@DATA@"), std::string::npos);
}

TEST(CommandBenchSpeculation, SaysWhatHasNoEffect) {
  const base::ScratchDirectory scratch;
  const std::string config = scratch.file("config.yaml");
  ASSERT_TRUE(formats::write_file(config,
                                  "tensor_parallel_size: 1\nenable_attention_dp: true\n"
                                  "speculative_config: {decoding_type: auto}\n")
                  .ok());
  const CommandEnd end = run_command(
      {.arguments = {"bench", "speculation", "--model", small_model(), "--config", config}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("speculative_config: has no effect here"));
}

TEST(CommandSpeculation, GenerateShowsWhatWasAccepted) {
  const base::ScratchDirectory scratch;
  const std::string config = scratch.file("config.yaml");
  for (const bool speculates : {false, true}) {
    ASSERT_TRUE(
        formats::write_file(config, std::string("tensor_parallel_size: 1\nenable_attention_dp: "
                                                "true\n") +
                                        (speculates ? "speculative_config: {decoding_type: SA, "
                                                      "max_draft_len: 3}\n"
                                                    : ""))
            .ok());
    const CommandEnd end =
        run_command({.arguments = {"generate", "--model", small_model(), "--config", config,
                                   "--prompt", "ab ab ab ab", "--max-tokens", "20"}});
    ASSERT_EQ(end.exit_code, 0) << end.err;
    EXPECT_EQ(end.out.find("acceptance length") != std::string::npos ||
                  end.err.find("acceptance length") != std::string::npos,
              speculates);
    EXPECT_EQ(end.err.find("drafts  up to 3 tokens") != std::string::npos, speculates) << end.err;
  }
}

}  // namespace
}  // namespace wideep::tests
