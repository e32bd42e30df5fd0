// SPDX-License-Identifier: Apache-2.0
//
// Small files, with the meaning that vLLM and transformers give to absent keys, nulls and
// do_sample. A key that would change texts and is not followed must be named; one with its neutral
// value must not. A failure means that a model answers with another temperature than its card says,
// and no error shows it.
#include "run/sampling_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "tensor_files/gguf_testing.h"

namespace wideep::run {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class SamplingDefaultsTest : public testing::Test {
 protected:
  void write(const std::string& text) {
    ASSERT_TRUE(formats::write_file(scratch_.file("generation_config.json"), text).ok());
  }
  Result<SamplingDefaults> read(const std::string& from = "auto") const {
    return read_sampling_defaults(scratch_.path(), from);
  }
  // What a request without a word of its own gets, which by itself would have temperature 1.
  engine::SamplingParams sampling() const {
    engine::SamplingParams params;
    params.temperature = 1.0f;
    read().value().apply(&params);
    return params;
  }

  base::ScratchDirectory scratch_;
};

TEST_F(SamplingDefaultsTest, AreThoseOfTheFile) {
  write(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.05,
            "repetition_penalty": 1.05, "max_new_tokens": 2048, "eos_token_id": [1, 2],
            "bos_token_id": null, "transformers_version": "4.57.0"})");
  const engine::SamplingParams params = sampling();
  EXPECT_EQ(params.temperature, 0.6f);
  EXPECT_EQ(params.top_k, 20);
  EXPECT_EQ(params.top_p, 0.95f);
  EXPECT_EQ(params.min_p, 0.05f);
  EXPECT_EQ(params.repetition_penalty, 1.05f);
  const SamplingDefaults defaults = read().value();
  EXPECT_EQ(defaults.max_tokens, 2048);
  EXPECT_THAT(
      defaults.lines(),
      ElementsAre(HasSubstr("what a request does not say is temperature 0.6, top_k 20, top_p 0.95, "
                            "min_p 0.05, repetition_penalty 1.05, as " +
                            scratch_.file("generation_config.json")),
                  HasSubstr("at most 2048 tokens")));
}

TEST_F(SamplingDefaultsTest, OfAGreedyCardAreGreedy) {
  write(R"({"do_sample": false, "temperature": 0.6, "top_p": 0.9})");
  EXPECT_EQ(sampling().temperature, 0.0f);
  write(R"({"do_sample": false})");
  EXPECT_EQ(sampling().temperature, 0.0f);
  // As vLLM: what is not said is not greedy.
  write(R"({"top_p": 0.9})");
  EXPECT_EQ(sampling().temperature, 1.0f);
  EXPECT_EQ(sampling().top_p, 0.9f);
  write(R"({"do_sample": null, "temperature": null, "top_k": -1})");
  EXPECT_EQ(sampling().temperature, 1.0f);
  EXPECT_EQ(sampling().top_k, 0);
}

TEST_F(SamplingDefaultsTest, MayBeLeftOutOrComeFromElsewhere) {
  EXPECT_THAT(read().value().lines(), IsEmpty());  // no file
  write(R"({"temperature": 0.6})");
  EXPECT_THAT(read("none").value().lines(), IsEmpty());
  EXPECT_EQ(read("none").value().temperature, std::nullopt);
  const base::ScratchDirectory other;
  ASSERT_TRUE(
      formats::write_file(other.file("generation_config.json"), R"({"temperature": 0.3})").ok());
  EXPECT_EQ(read(other.path()).value().temperature, 0.3f);
  EXPECT_THAT(read("/nowhere").status().message(),
              HasSubstr("--generation-config: expected auto, none, or a directory"));
}

TEST_F(SamplingDefaultsTest, WhatIsNotFollowedIsNamed) {
  write(R"({"num_beams": 4, "no_repeat_ngram_size": 3, "length_penalty": 1.0, "typical_p": 1,
            "bad_words_ids": [], "suppress_tokens": [7], "num_return_sequences": 1,
            "sequence_bias": null, "new_sampler": {"a": 1}, "use_cache": true})");
  EXPECT_THAT(read().value().not_followed,
              ElementsAre("new_sampler {\"a\":1}", "no_repeat_ngram_size 3", "num_beams 4",
                          "suppress_tokens [7]"));
  EXPECT_THAT(read().value().lines(),
              ElementsAre(HasSubstr("not followed, though it would change texts: new_sampler")));
}

TEST_F(SamplingDefaultsTest, WrongValuesNameFileAndKey) {
  const std::string path = scratch_.file("generation_config.json");
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"temperature": -1})", ": temperature: expected"},
      {R"({"temperature": "hot"})", ": temperature: expected a number"},
      {R"({"top_p": 0})", ": top_p: expected"},
      {R"({"top_p": 1.5})", ": top_p: expected"},
      {R"({"min_p": 2})", ": min_p: expected"},
      {R"({"top_k": 1.5})", ": top_k: expected an integer"},
      {R"({"repetition_penalty": 0})", ": repetition_penalty: expected"},
      {R"({"max_new_tokens": 0})", ": max_new_tokens: expected"},
      {R"({"do_sample": 1})", ": do_sample: expected"},
  };
  for (const auto& [text, message] : kCases) {
    write(text);
    EXPECT_THAT(read().status().message(), HasSubstr(path + message)) << text;
  }
}

TEST_F(SamplingDefaultsTest, OfGgufFiles) {
  const std::string path = scratch_.file("m.gguf");
  const auto read_gguf = [&](const tensor_files::GgufBuilder& builder) {
    EXPECT_TRUE(formats::write_file(path, builder.file()).ok());
    return read_sampling_defaults(path, "auto");
  };
  const SamplingDefaults defaults = read_gguf(tensor_files::GgufBuilder()
                                                  .number("general.sampling.temp", 0.5f)
                                                  .integer("general.sampling.top_k", 40)
                                                  .number("general.sampling.top_p", 0.8f)
                                                  .number("general.sampling.min_p", 0.0f)
                                                  .number("general.sampling.penalty_repeat", 1.1f)
                                                  .integer("general.sampling.penalty_last_n", 64)
                                                  .number("general.sampling.xtc_probability", 0.0f)
                                                  .number("general.sampling.xtc_threshold", 0.1f)
                                                  .integer("general.sampling.mirostat", 2)
                                                  .number("general.sampling.mirostat_tau", 5.0f))
                                        .value();
  EXPECT_EQ(defaults.temperature, 0.5f);
  EXPECT_EQ(defaults.top_k, 40);
  EXPECT_EQ(defaults.top_p, 0.8f);
  EXPECT_EQ(defaults.min_p, 0.0f);
  EXPECT_EQ(defaults.repetition_penalty, 1.1f);
  EXPECT_THAT(defaults.not_followed,
              testing::UnorderedElementsAre("penalty_last_n", "mirostat", "mirostat_tau"));
  EXPECT_THAT(read_gguf(tensor_files::GgufBuilder().number("general.sampling.top_p", 0.0f))
                  .status()
                  .message(),
              HasSubstr(path + ": general.sampling.top_p: expected a number from"));
  EXPECT_THAT(read_gguf(tensor_files::GgufBuilder().string("general.sampling.temp", "x"))
                  .status()
                  .message(),
              HasSubstr("general.sampling.temp: expected a number from 0 to 100, found a text"));
}

}  // namespace
}  // namespace wideep::run
