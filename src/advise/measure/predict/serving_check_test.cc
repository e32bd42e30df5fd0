// SPDX-License-Identifier: Apache-2.0
//
// The summary of serving_check.h on cells made by hand, and the directory of a served shape;
// tests/prediction has real services.
#include "measure/predict/serving_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
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
  const auto refusal = [&](const std::string& config, const std::string& tokenizer) {
    const std::string path = files.file("small.json");
    EXPECT_TRUE(formats::write_file(path, tokenizer).ok());
    const Status status = write_model_directory(files.path(), config, path);
    EXPECT_FALSE(status.ok()) << config << tokenizer;
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
    return status.message();
  };
  const std::string good = R"({"model": {"vocab": {"a": 0}}})";
  EXPECT_THAT(refusal("[1", good), HasSubstr("config.json:1:"));
  EXPECT_THAT(
      refusal("{}", good),
      HasSubstr("config.json: vocab_size: missing; expected an integer from 1 to 16777216"));
  for (const std::string size : {"null", "'5'", "[5]", "0", "-1", "1.5", "16777217", "1e30"}) {
    std::string config = "{\"vocab_size\": " + size + "}";
    std::ranges::replace(config, '\'', '"');
    EXPECT_THAT(refusal(config, good), HasSubstr("config.json: vocab_size: ")) << size;
  }

  const std::string config = R"({"vocab_size": 5})";
  for (const char* without :
       {"{}", "[]", "5", R"({"model": 5})", R"({"model": {"vocab": [["a", 0]]}})"}) {
    EXPECT_THAT(refusal(config, without),
                HasSubstr("small.json: expected a tokenizer with model.vocab, an object"));
  }
  EXPECT_THAT(refusal(config, "{"), HasSubstr("small.json:1:"));
  EXPECT_THAT(refusal(config, R"({"model": {"vocab": {"a": 0, "b\n": "1"}}})"),
              HasSubstr("small.json: model.vocab.b"));
  for (const std::string id : {"-1", "16777216", "18446744073709551615", "1.5", "null", "{}"}) {
    EXPECT_THAT(
        refusal(config, "{\"model\": {\"vocab\": {\"a\": " + id + "}}}"),
        HasSubstr("small.json: model.vocab.a: expected an integer from 0 to 16777215, found "))
        << id;
  }
  const auto with_added = [&](const std::string& added) {
    return refusal(config, R"({"model": {"vocab": {"a": 0}}, "added_tokens": )" + added + "}");
  };
  EXPECT_THAT(with_added("5"), HasSubstr("small.json: added_tokens: expected a list, found 5"));
  EXPECT_THAT(with_added(R"([{"id": 1}, "b"])"),
              HasSubstr("small.json: added_tokens[1]: expected an object, found 'b'"));
  EXPECT_THAT(with_added(R"([{"id": "1"}])"),
              HasSubstr("small.json: added_tokens[0].id: expected an integer from 0 to 16777215, "
                        "found '1'"));
}

TEST(ServedModel, SaysWhyItDoesNotServe) {
  EXPECT_THAT(ServedModel::start("/nowhere/wideep", {}).status().message(),
              HasSubstr("/nowhere/wideep: cannot be started: No such file"));
  EXPECT_THAT(ServedModel::start("/bin/echo", {}).status().message(),
              HasSubstr("wideep serve has ended"));
}

}  // namespace
}  // namespace wideep::measure
