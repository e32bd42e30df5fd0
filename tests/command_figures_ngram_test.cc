// SPDX-License-Identifier: Apache-2.0
//
// wideep figures ngram: its accepted lengths, counted again from the iteration log of another
// command that generates the same answers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <sstream>

#include "command_figure.h"
#include "command_model.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int kTokens = 24;

const json* chart_named(const json& figure, const std::string& part) {
  for (const json& chart : figure["charts"]) {
    if (chart["title"].get<std::string>().find(part) != std::string::npos) return &chart;
  }
  ADD_FAILURE() << "no chart with " << part;
  return nullptr;
}

class CommandFigureNgram : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    EXPECT_TRUE(formats::write_file(directory_.file(name), content).ok());
    return directory_.file(name);
  }

  // Tokens of the steps without prompt tokens, over the requests in them.
  double logged_length(const std::string& prompts) const {
    const std::string log = directory_.file("log.jsonl");
    const std::string config = write(
        "config.yaml",
        "tensor_parallel_size: 1\nenable_attention_dp: true\nmax_batch_size: 2\n"
        "speculative_config: {decoding_type: NGram, max_draft_len: 5, max_matching_ngram_size: "
        "3}\n");
    const CommandEnd end = run_command(
        {.arguments = {"generate", "--model", small_model(), "--config", config, "--prompts",
                       prompts, "--max-tokens", std::to_string(kTokens), "--iteration-log", log}});
    EXPECT_EQ(end.exit_code, 0) << end.err;
    std::istringstream lines(*formats::read_file(log));
    double tokens = 0.0, requests = 0.0;
    for (std::string line; std::getline(lines, line);) {
      const json batch = json::parse(line, nullptr, false)["inflightBatchingStats"];
      if (batch["numCtxTokens"] != 0) continue;
      tokens += batch["numGeneratedTokens"].get<double>();
      requests += batch["numGenRequests"].get<double>();
    }
    EXPECT_GT(requests, 0.0);
    return tokens / requests;
  }

  const base::ScratchDirectory directory_;
};

TEST_F(CommandFigureNgram, ShowsWhatTheLogHas) {
  const std::string prompts = write("prompts.jsonl",
                                    "{\"prompt\": \"ab ab ab ab ab\"}\n"
                                    "{\"prompt\": \"one two one two\"}\n");
  const std::string turns =
      write("turns.jsonl",
            "{\"question_id\": 1, \"turns\": [\"ab ab ab ab ab\", \"again\"]}\n"
            "{\"prompt\": \"one two one two\"}\n");
  const json shown = drawn_figure(
      {"ngram", "--model", small_model(), "--prompts", turns, "--translations", prompts, "--batch",
       "1,2", "--requests", "1", "--rounds", "2", "--max-tokens", std::to_string(kTokens),
       "--sizes", "3:5,5:3", "--translation-sizes", "3:5,5:7"},
      directory_);

  // AL of two conversations at once, k = 3, v = 5, first turn; the published ones beside it.
  const json& row = shown["tables"][0]["rows"][0];
  EXPECT_EQ(row[0], 3);
  EXPECT_EQ(row[1], 5);
  const double length = logged_length(prompts);
  EXPECT_GT(length, 1.0);
  EXPECT_NEAR(row[2].get<double>(), length, 1e-9);
  EXPECT_EQ(row[3], 1.37);
  EXPECT_EQ(row[5], 1.66);
  // The same prompts as translations.
  const json& translation = shown["tables"][1]["rows"][0];
  EXPECT_NEAR(translation[2].get<double>(), length, 1e-9);
  EXPECT_TRUE(translation[3].is_null());
  EXPECT_EQ(shown["tables"][1]["rows"][1][3], 3.62);  // k = 5, v = 7

  // Figure 4: shares of lengths 1 to 6, whose mean is the accepted length.
  const json& lengths = (*chart_named(shown, "Figure 4"))["series"][0]["y"];
  ASSERT_EQ(lengths.size(), 6u);
  double all = 0.0, mean = 0.0;
  for (size_t i = 0; i < 6; ++i) {
    all += lengths[i].get<double>();
    mean += static_cast<double>(i + 1) * lengths[i].get<double>() / 100.0;
  }
  EXPECT_NEAR(all, 100.0, 1e-9);
  EXPECT_NEAR(mean, length, 1e-9);

  // Figure 7: a request's steps give all its tokens but the first, which came with its prompt.
  for (const json& request : (*chart_named(shown, "Figure 7, right"))["series"]) {
    const json& y = request["y"];
    EXPECT_EQ(std::accumulate(y.begin(), y.end(), 0,
                              [](int sum, const json& each) { return sum + each.get<int>(); }),
              kTokens - 1);
  }
  // Figures 3 and 6: a bar for each batch and size; the text has numbers of the second turn.
  EXPECT_EQ((*chart_named(shown, "Figure 3"))["series"].size(), 2u);
  const json& second = *chart_named(shown, "Figure 6");
  EXPECT_EQ(second["categories"], json({"1", "2"}));
  ASSERT_EQ(second["series"].size(), 3u);
  EXPECT_EQ(second["series"][2]["published"], true);
  EXPECT_EQ(second["series"][2]["y"][0], 96.13);
  EXPECT_TRUE(second["series"][2]["y"][1].is_null());
  // The last table has runtimes: a speed-up is the median of the rounds' ratios.
  for (const json& each : shown["tables"][2]["rows"]) {
    EXPECT_LE(each[8].get<double>(), each[7].get<double>());
    EXPECT_LE(each[7].get<double>(), each[9].get<double>());
  }
}

TEST_F(CommandFigureNgram, RefusesWhatItCannotRead) {
  const auto refused = [&](const std::vector<std::string>& more,
                           const std::vector<std::string>& parts) {
    std::vector<std::string> arguments = {"figures",     "ngram",    "--model",
                                          small_model(), "--output", directory_.file("figures")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    expect_refused(run_command({.arguments = arguments}), parts);
  };
  refused({"--sizes", "3"}, {"--sizes", "found \"3\""});
  refused({"--sizes", "3:0"}, {"--sizes", "1 to 64"});
  refused({"--max-batch-size", "4"}, {"--max-batch-size", "--batch"});
  refused({"--routing-log", directory_.file("log")}, {"--routing-log", "records nothing"});
  refused({"--prompts", write("empty.jsonl", "")}, {"empty.jsonl", "no conversation"});
  refused({"--prompts", write("turns.jsonl", "{\"turns\": []}\n")},
          {"turns.jsonl line 1", "turns"});
  refused({"--prompts", write("other.jsonl", "{\"prompt\": \"a\", \"max_tokens\": 4}\n")},
          {"other.jsonl line 1", "max_tokens"});
}

}  // namespace
}  // namespace wideep::tests
