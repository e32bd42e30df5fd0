// SPDX-License-Identifier: Apache-2.0
//
// Small files of both families are read with what surrounds them: special tokens after the ranks,
// and a tokenizer_config.json that may not fit. Each is then damaged in one place; a file that was
// cut short is still a list of good lines, so that gaps in the ranks and bytes without a token must
// be noticed. With fewer tokens, or others, texts would get ids that the model knows as something
// else. Ids of texts are held by the golden tests.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "tokenizer/golden_texts.h"
#include "tokenizer/long_runs.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/tiktoken_reader.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tokenizer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string golden_file(const std::string& name) {
  const Result<std::string> text = formats::read_file(golden_path(name));
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

class TiktokenTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(formats::write_file(scratch_.file(name), text).ok());
  }
  std::string error() {
    const Result<Tokenizer> tokenizer = Tokenizer::read(scratch_.path());
    if (tokenizer.ok()) return "";
    EXPECT_EQ(tokenizer.status().code(), StatusCode::kInvalidInput);
    EXPECT_EQ(tokenizer.status().message().find('\n'), std::string::npos);
    return tokenizer.status().message();
  }

  base::ScratchDirectory scratch_;
};

TEST_F(TiktokenTest, SpecialTokensFollowTheRanks) {
  write("hy.tiktoken", golden_file("hunyuan/hy.tiktoken"));
  const Result<Tokenizer> tokenizer = Tokenizer::read(scratch_.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->token_to_id("<|endoftext|>"), 700);
  EXPECT_EQ(tokenizer->token_to_id("<|extra_204|>"), 909);
  EXPECT_TRUE(tokenizer->is_special(909));
  EXPECT_EQ(tokenizer->id_limit(), 910);
}

TEST_F(TiktokenTest, KimisReservedTokensAreShown) {
  write("tiktoken.model", golden_file("kimi/tiktoken.model"));
  const Result<Tokenizer> tokenizer = Tokenizer::read(scratch_.path());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->token_to_id("<|reserved_token_700|>"), 700);
  EXPECT_FALSE(tokenizer->is_special(700));
  EXPECT_EQ(tokenizer->id_limit(), 956);
}

TEST_F(TiktokenTest, ATokenizerJsonComesFirst) {
  write("tiktoken.model", "no tokens");
  write("tokenizer.json", small_tokenizer_json().dump());
  EXPECT_EQ(error(), "");
}

TEST_F(TiktokenTest, TheLastLineMayHaveNoEnd) {
  const std::string text = golden_file("hunyuan/hy.tiktoken");
  write("hy.tiktoken", text.substr(0, text.size() - 1));
  EXPECT_EQ(error(), "");
}

TEST_F(TiktokenTest, DamagedFilesAreRefused) {
  const std::string text = golden_file("hunyuan/hy.tiktoken");
  const auto message = [&](const std::string& damaged) {
    write("hy.tiktoken", damaged);
    return error();
  };
  EXPECT_THAT(message(""), HasSubstr("hy.tiktoken: empty; expected tokens"));
  EXPECT_THAT(message(text.substr(0, text.size() - 2)),
              HasSubstr("line 700, the last one: found rank 69, expected 699: ranks follow each "
                        "other without gaps; is the file cut short?"));
  EXPECT_THAT(message(text.substr(0, text.size() - 6)), HasSubstr("is the file cut short?"));
  EXPECT_THAT(message(text.substr(0, text.find("AQ== 189\n"))),
              HasSubstr("no token for the byte 0x01; expected one for each of the 256 bytes"));
  const auto with = [&](const std::string& found, const std::string& other) {
    std::string damaged = text;
    damaged.replace(damaged.find(found), found.size(), other);
    return message(damaged);
  };
  ASSERT_THAT(text, HasSubstr("Ig== 1\n"));
  EXPECT_THAT(with("Ig== 1\n", "Ig== 2\n"),
              HasSubstr("hy.tiktoken: line 2: found rank 2, expected 1"));
  EXPECT_THAT(with("Ig== 1\n", ""), HasSubstr("line 2: found rank 2, expected 1"));
  EXPECT_THAT(with("Ig== 1\n", "IQ== 1\n"), HasSubstr("line 2: the token '!' is that of line 1"));
  // The ways to cut a token in two are looked up, each by its text.
  EXPECT_THAT(with("Ig== 1\n", std::string(4 * 400, 'A') + " 1\n"),
              HasSubstr("line 2: expected tokens of at most 1024 bytes, found one of 1200"));
  for (const char* line : {"I*== 1\n", "Ig= 1\n", "Ih== 1\n", "Ig==1\n", "Ig== x\n", "Ig== -1\n",
                           "Ig==  1\n", " 1\n", "\n", "Ig== 1 1\n"}) {
    EXPECT_THAT(with("Ig== 1\n", line),
                HasSubstr("line 2: expected a token in base64 and its rank, found '"))
        << line;
  }
}

TEST_F(TiktokenTest, TokenizerConfigMustFit) {
  write("tiktoken.model", golden_file("kimi/tiktoken.model"));
  write("tokenizer_config.json", R"({"tokenizer_class": "HYTokenizer"})");
  EXPECT_THAT(error(), HasSubstr("tokenizer_class: 'HYTokenizer' with tiktoken.model is not"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"956": {"content": "<x>"}}})");
  EXPECT_THAT(error(), HasSubstr("token '<x>' has id 956, expected 700 to 955"));
  write("tokenizer_config.json", R"({"added_tokens_decoder": {"700": {"content": "a"}}})");
  EXPECT_THAT(error(), HasSubstr("token 'a' has two ids"));
}

TEST(LongRunsTest, AreCutByCharacters) {
  const RunLimits limits{.part = 10, .run = 3};
  EXPECT_THAT(cut_long_runs("", limits), ElementsAre());
  EXPECT_THAT(cut_long_runs("abc  d", limits), ElementsAre("abc  d"));
  EXPECT_THAT(cut_long_runs("abcdefg", limits), ElementsAre("abc", "def", "g"));
  EXPECT_THAT(cut_long_runs("\u4E2D\u4E2D\u4E2D\u4E2D", limits),
              ElementsAre("\u4E2D\u4E2D\u4E2D", "\u4E2D"));
  EXPECT_THAT(cut_long_runs("a \x1C\u3000 b", limits), ElementsAre("a \x1C\u3000", " b"));
  EXPECT_THAT(cut_long_runs("ab cd ef ghi", limits), ElementsAre("ab cd ef g", "hi"));
}

}  // namespace
}  // namespace wideep::tokenizer
