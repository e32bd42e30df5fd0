// SPDX-License-Identifier: Apache-2.0
//
// Lines in TensorRT-LLM's form are read as they are meant, and written ones read back. Ids at the
// ends of 32 bits must be refused with their place, or become other tokens without a word. Drawn
// lengths are held against the mean and deviation asked for, real texts against the tokenizer of
// the reference model.
#include "measure/serving/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/scratch_directory.h"

namespace wideep::measure {
namespace {

using testing::HasSubstr;

class Dataset : public testing::Test {
 protected:
  Result<std::vector<DatasetRequest>> read(const std::string& text) {
    const std::string path = directory_.file("data.jsonl");
    std::ofstream(path) << text;
    return read_dataset(path);
  }
  base::ScratchDirectory directory_;
};

TEST_F(Dataset, ReadsTensorRtLlmsLines) {
  const auto requests = read(
      "{\"task_id\": 0, \"input_ids\": [5, 6], \"output_tokens\": 7}\n\n"
      "{\"task_id\": 1, \"prompt\": \"Hi\", \"output_tokens\": 2}\n");
  ASSERT_TRUE(requests.ok()) << requests.status().message();
  ASSERT_EQ(requests->size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>((*requests)[0].prompt), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ((*requests)[0].output_tokens, 7);
  EXPECT_EQ(std::get<std::string>((*requests)[1].prompt), "Hi");
}

TEST_F(Dataset, ErrorsNameTheLine) {
  EXPECT_THAT(read("{\"output_tokens\": 1}").status().message(),
              HasSubstr(":1: expected \"prompt\""));
  EXPECT_THAT(read("{\"prompt\": \"a\"}").status().message(), HasSubstr("output_tokens: expected"));
  EXPECT_THAT(read("\n[1]").status().message(), HasSubstr(":2: expected an object"));
  const std::string good = "{\"input_ids\": [2147483647], \"output_tokens\": 1}\n";
  EXPECT_TRUE(read(good).ok());
  for (const std::string id : {"2147483648", "4294967301", "18446744073709551615", "-1"}) {
    EXPECT_THAT(
        read(good + "{\"input_ids\": [1, " + id + "], \"output_tokens\": 1}").status().message(),
        HasSubstr(":2: input_ids[1]: expected a token id from 0 to 2147483647, found " + id));
  }
  EXPECT_TRUE(read("{\"prompt\": \"a\", \"output_tokens\": 16777216}").ok());
  for (const std::string count :
       {"16777217", "4294967297", "18446744073709551615", "0", "-1", "1.5"}) {
    EXPECT_THAT(
        read(good + "{\"prompt\": \"a\", \"output_tokens\": " + count + "}").status().message(),
        HasSubstr(":2: output_tokens: expected an integer from 1 to 16777216, found " + count));
  }
  EXPECT_THAT(read("").status().message(), HasSubstr("has no request"));
}

TEST_F(Dataset, WrittenDatasetsAreReadBack) {
  const std::vector<DatasetRequest> written = {{std::vector<int32_t>{1, 2}, 3}, {"text \"x\"", 4}};
  const std::string path = directory_.file("written.jsonl");
  ASSERT_TRUE(write_dataset(path, written).ok());
  const auto found = read_dataset(path);
  ASSERT_TRUE(found.ok()) << found.status().message();
  ASSERT_EQ(found->size(), 2u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ((*found)[i].prompt, written[i].prompt);
    EXPECT_EQ((*found)[i].output_tokens, written[i].output_tokens);
  }
}

TEST(RandomDatasets, HaveTheLengthsAskedFor) {
  RandomDataset options{.count = 2000,
                        .input = NormalLength{50, 10},
                        .output = UniformLength{3, 6},
                        .min_id = 10,
                        .num_ids = 4};
  const auto requests = random_dataset(options);
  ASSERT_EQ(requests.size(), 2000u);
  double sum = 0, squares = 0;
  int min = 100, max = 0;
  for (const DatasetRequest& each : requests) {
    const auto& ids = std::get<std::vector<int32_t>>(each.prompt);
    sum += static_cast<double>(ids.size());
    squares += static_cast<double>(ids.size() * ids.size());
    min = std::min(min, each.output_tokens);
    max = std::max(max, each.output_tokens);
    for (const int32_t id : ids) EXPECT_THAT(id, testing::AllOf(testing::Ge(10), testing::Lt(14)));
  }
  const double mean = sum / 2000;
  EXPECT_NEAR(mean, 50.5, 1.0);  // rounded up
  EXPECT_NEAR(std::sqrt(squares / 2000 - mean * mean), 10, 1.0);
  EXPECT_EQ(min, 3);
  EXPECT_EQ(max, 6);
  EXPECT_EQ(random_dataset(options)[7].prompt, requests[7].prompt);  // the same seed
  options.input = NormalLength{-5, 0};
  EXPECT_EQ(std::get<std::vector<int32_t>>(random_dataset(options)[0].prompt).size(), 1u);
}

TEST_F(Dataset, WhatOnlyOtherModelsHaveIsRefused) {
  const std::string rest = ", \"input_ids\": [1], \"output_tokens\": 2}\n";
  EXPECT_THAT(read("{\"lora_request\": {\"lora_int_id\": 1}" + rest).status().message(),
              HasSubstr(":1: lora_request: there are no LoRA adapters"));
  EXPECT_THAT(read("{\"media_paths\": [\"x.jpg\"]" + rest).status().message(),
              HasSubstr("media_paths: only text is supported"));
  EXPECT_THAT(read("{\"turns\": [\"a\", \"b\"]" + rest).status().message(),
              HasSubstr("turns: only single turns are supported"));
  EXPECT_TRUE(read("{\"lora_request\": null" + rest).ok());
}

TEST_F(Dataset, RealTextsMayHaveAPromptAndAGoldenAnswer) {
  const auto tokenizer = tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value();
  const std::string path = directory_.file("texts.csv");
  std::ofstream(path) << "how,question,answer\nSay:,Why?,Because it is so\nTell:,How?,\n";
  RealDataset options{.source = {.path = path, .configuration = "", .split = ""},
                      .key = "question",
                      .output_key = "answer",
                      .count = 0};
  const auto check = [&](const std::string& first, const std::string& second) {
    const auto all = real_dataset(options, tokenizer);
    ASSERT_TRUE(all.ok()) << all.status().message();
    ASSERT_EQ(all->size(), 2u);
    EXPECT_EQ(std::get<std::vector<int32_t>>((*all)[0].prompt), tokenizer.encode(first));
    EXPECT_EQ(std::get<std::vector<int32_t>>((*all)[1].prompt), tokenizer.encode(second));
    EXPECT_EQ((*all)[0].output_tokens,
              static_cast<int>(tokenizer.encode("Because it is so").size()));
    EXPECT_EQ((*all)[1].output_tokens, 1);  // as few as can be
  };
  check("Why?", "How?");
  options.prompt = "Answer:";
  check("Answer: Why?", "Answer: How?");
  options.prompt = "";
  options.prompt_key = "how";
  check("Say: Why?", "Tell: How?");
  options.output_key = "result";
  EXPECT_THAT(real_dataset(options, tokenizer).status().message(),
              HasSubstr("texts.csv:2: expected a string under the key \"result\""));
}

TEST_F(Dataset, RealTextsAreTokenised) {
  const auto tokenizer = tokenizer::Tokenizer::read(WIDEEP_SOURCE_DIR "/models/reference").value();
  const std::string path = directory_.file("texts.jsonl");
  std::ofstream(path) << "{\"question\": \"One two three four five six seven eight nine\"}\n"
                         "{\"question\": \"Why?\"}\n{\"question\": \"How?\"}\n";
  RealDataset options{.source = {.path = path, .configuration = "", .split = ""},
                      .key = "question",
                      .count = 2,
                      .output = UniformLength{5, 5}};
  const auto all = real_dataset(options, tokenizer);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->size(), 2u);
  EXPECT_EQ(std::get<std::vector<int32_t>>((*all)[1].prompt), tokenizer.encode("Why?"));
  options.max_input = 5;
  EXPECT_EQ(std::get<std::vector<int32_t>>(real_dataset(options, tokenizer)->at(0).prompt),
            tokenizer.encode("Why?"));
  options.key = "answer";
  EXPECT_THAT(real_dataset(options, tokenizer).status().message(),
              HasSubstr(":1: expected a string under the key \"answer\""));
  options.key = "question";
  options.max_input = 1;
  EXPECT_THAT(real_dataset(options, tokenizer).status().message(),
              HasSubstr("texts.jsonl: no text of at most 1 tokens"));
  for (const char* nothing : {"", "\n\n"}) {
    std::ofstream(path) << nothing;
    for (const int max_input : {0, 5}) {
      options.max_input = max_input;
      EXPECT_THAT(real_dataset(options, tokenizer).status().message(),
                  HasSubstr("texts.jsonl: expected lines with a text under the key \"question\", "
                            "found none or empty ones"));
    }
  }
}

}  // namespace
}  // namespace wideep::measure
