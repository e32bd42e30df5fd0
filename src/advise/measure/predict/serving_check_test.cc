// SPDX-License-Identifier: Apache-2.0
//
// The summary of serving_check.h on cells made by hand, and the directory of a served shape;
// tests/prediction has real services.
#include "measure/predict/serving_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "formats/files.h"
#include "measure/predict/served_model.h"

namespace wideep::measure {
namespace {

using testing::HasSubstr;

TEST(ServedSummary, TakesMediansAndTailsApart) {
  const std::vector<ServedCell> cells = {
      {.ttft = {.predicted = 1.1, .measured = 1.0, .noise = 0.02},
       .ttft_p99 = {.predicted = 1.5, .measured = 1.0, .noise = 0.3},
       .tpot = {.predicted = 0.8, .measured = 1.0, .noise = 0.02},
       .tpot_p99 = {.predicted = 0.7, .measured = 1.0, .noise = 0.3}},
      {.ttft = {.predicted = 1.1, .measured = 1.0, .noise = 0.02},
       .ttft_p99 = {.predicted = 1.3, .measured = 1.0, .noise = 0.3},
       .tpot = {.predicted = 1.0, .measured = 1.0, .noise = 0.02},
       .tpot_p99 = {.predicted = 1.3, .measured = 1.0, .noise = 0.3}}};
  const ServedSummary summary = summarize(cells);
  EXPECT_NEAR(summary.median, 0.1, 1e-9);
  EXPECT_NEAR(summary.worst, 0.2, 1e-9);
  EXPECT_NEAR(summary.median_p99, 0.3, 1e-9);
  EXPECT_NEAR(summary.worst_p99, 0.5, 1e-9);
  EXPECT_NEAR(summary.noise, 0.02, 1e-9);
  EXPECT_NEAR(summary.noise_p99, 0.3, 1e-9);
}

TEST(ModelDirectory, HasATextForEachToken) {
  const base::ScratchDirectory files;
  const std::string tokenizer = files.file("small.json");
  ASSERT_TRUE(formats::write_file(tokenizer, R"({"model": {"vocab": {"a": 0, "b": 1}},
                                                 "added_tokens": [{"id": 2, "content": "c"}]})")
                  .ok());
  const base::ScratchDirectory directory;
  const Status status = write_model_directory(directory.path(), R"({"vocab_size": 5})", tokenizer);
  ASSERT_TRUE(status.ok()) << status.message();
  const auto text = formats::read_file(directory.file("tokenizer.json"));
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(nlohmann::json::parse(*text)["model"]["vocab"],
            nlohmann::json({{"a", 0}, {"b", 1}, {"t3", 3}, {"t4", 4}}));
}

TEST(ModelDirectory, RefusesWhatIsNone) {
  const base::ScratchDirectory files;
  const std::string tokenizer = files.file("small.json");
  ASSERT_TRUE(formats::write_file(tokenizer, "{}").ok());
  EXPECT_THAT(write_model_directory(files.path(), "[1", tokenizer).message(),
              HasSubstr("config.json: expected JSON with vocab_size"));
  EXPECT_THAT(write_model_directory(files.path(), R"({"vocab_size": 5})", tokenizer).message(),
              HasSubstr("small.json: expected a tokenizer with model.vocab"));
}

TEST(ServedModel, SaysWhyItDoesNotServe) {
  EXPECT_THAT(ServedModel::start("/nowhere/wideep", {}).status().message(),
              HasSubstr("/nowhere/wideep: cannot be started: No such file"));
  EXPECT_THAT(ServedModel::start("/bin/echo", {}).status().message(),
              HasSubstr("wideep serve has ended"));
}

}  // namespace
}  // namespace wideep::measure
