// SPDX-License-Identifier: Apache-2.0
//
// Compares a tokenizer of each kind in use, and each step of a tokenizer.json, with the tokenizers
// and tiktoken libraries (tests/golden/make_tokenizer_kinds.py says what is digested).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "tokenizer/char_kinds.h"
#include "tokenizer/golden_texts.h"
#include "tokenizer/pattern.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

using nlohmann::json;

// Digests are computed over the ids as little-endian int32.
static_assert(std::endian::native == std::endian::little);

const json& kinds() {
  static const json value = read_golden("kinds.json");
  return value;
}

const std::vector<std::string>& texts() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> list;
    const json cases = read_golden("cases.json");
    for (const json& row : cases.at("texts")) list.push_back(text_of(row));
    return list;
  }();
  return all;
}

class Digest {
 public:
  explicit Digest(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(const std::vector<int32_t>& ids) {
    hash_.update(ids.data(), ids.size() * sizeof(int32_t));
    for (const bool skip : {true, false}) {
      const std::string text = tokenizer_.decode(ids, skip);
      hash_.update(text.c_str(), text.size() + 1);
      EXPECT_EQ(streamed(ids, skip), text);
    }
  }

  std::string start() { return hash_.hex().substr(0, 12); }

 private:
  std::string streamed(const std::vector<int32_t>& ids, bool skip) {
    StreamDecoder decoder(tokenizer_, skip);
    std::string text;
    for (const int32_t id : ids) {
      const std::string piece = decoder.push(id);
      EXPECT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    return text + decoder.flush();
  }

  const Tokenizer& tokenizer_;
  base::Sha256 hash_;
};

std::string digest_of_numbers(const Tokenizer& tokenizer) {
  const auto limit = static_cast<int32_t>(tokenizer.vocab_size()) + 20;
  Digest digest(tokenizer);
  for (const json& row : kinds().at("numbers")) {
    std::vector<int32_t> ids;
    for (const json& number : row) ids.push_back(number.get<int32_t>() % limit);
    digest.add(ids);
  }
  return digest.start();
}

class KindsTest : public testing::TestWithParam<std::string> {};

TEST_P(KindsTest, EncodesAndDecodesLikeTheLibrary) {
  const Result<Tokenizer> tokenizer = Tokenizer::read(golden_path(GetParam()));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const json& expected = kinds().at("kinds").at(GetParam());
  ASSERT_EQ(expected.size(), texts().size());
  for (size_t i = 0; i < texts().size(); ++i) {
    Digest digest(*tokenizer);
    digest.add(tokenizer->encode(texts()[i]));
    EXPECT_EQ(digest.start(), expected[i].get<std::string>()) << texts()[i].substr(0, 300);
  }
  EXPECT_EQ(digest_of_numbers(*tokenizer), kinds().at("decodes").at(GetParam()).get<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, KindsTest,
                         testing::Values("mixtral", "ernie", "gpt_oss", "glm", "qwen3_5", "minimax",
                                         "granite", "llama4", "lfm2", "olmoe", "deepseek_v2",
                                         "kimi", "hunyuan"),
                         [](const auto& suite) { return suite.param; });

TEST(StepsTest, EncodeAndDecodeLikeTheLibrary) {
  const json& steps = kinds().at("steps");
  ASSERT_GE(steps.size(), 50u);
  const json mixtral = read_golden("mixtral/tokenizer.json");
  std::vector<std::string> short_texts;
  for (const std::string& text : texts()) {
    if (text.size() < 1000) short_texts.push_back(text);
  }
  for (const json& step : steps) {
    SCOPED_TRACE(step.at("name").get<std::string>());
    json file = mixtral;
    for (const auto& [key, value] : step.at("put").items()) {
      if (key == "model") {
        file["model"].update(value);
      } else {
        file[key] = value;
      }
    }
    const Result<Tokenizer> tokenizer = Tokenizer::parse(file.dump(), "steps");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    EXPECT_EQ(digest_of_numbers(*tokenizer), step.at("decoded").get<std::string>());
    for (size_t part = 0; part < step.at("texts").size(); ++part) {
      Digest digest(*tokenizer);
      for (size_t i = part * 32; i < std::min(short_texts.size(), part * 32 + 32); ++i) {
        digest.add(tokenizer->encode(short_texts[i]));
      }
      EXPECT_EQ(digest.start(), step.at("texts")[part].get<std::string>())
          << "texts from " << part * 32 << " on";
    }
  }
}

// [first, last, first, last, ...] of the code points of a kind.
template <typename Is>
std::vector<uint32_t> ranges_of(Is is) {
  std::vector<uint32_t> ranges;
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if ((c >= 0xD800 && c < 0xE000) || !is(static_cast<char32_t>(c))) continue;
    if (!ranges.empty() && ranges.back() + 1 == c) {
      ranges.back() = c;
    } else {
      ranges.insert(ranges.end(), {c, c});
    }
  }
  return ranges;
}

TEST(CharKindsTest, EqualTheLibrarys) {
  const json& expected = kinds().at("characters");
  const auto ranges = [&](const char* name) {
    return expected.at(name).get<std::vector<uint32_t>>();
  };
  EXPECT_EQ(ranges_of(is_numeric), ranges("numeric"));
  EXPECT_EQ(ranges_of(is_punctuation), ranges("punctuation"));
  EXPECT_EQ(ranges_of(is_word_character), ranges("word"));
  EXPECT_EQ(ranges_of(is_mark), ranges("mark"));
}

TEST(CharKindsTest, LowerCaseEqualsTheLibrarys) {
  json cases = json::array();
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string self, lower;
    append_utf8(c, &self);
    append_lower_case(c, &lower);
    if (lower == self) continue;
    cases.push_back(static_cast<uint32_t>(c));
    cases.push_back(lower);
  }
  // Python's json puts a space after each comma.
  std::string text = "[";
  for (const json& each : cases) text += (text.size() > 1 ? ", " : "") + each.dump();
  text += "]";
  base::Sha256 hash;
  hash.update(text.data(), text.size());
  EXPECT_EQ(hash.hex().substr(0, 12), kinds().at("characters").at("lower").get<std::string>());
}

// Han as a property, and in a set that is computed.
TEST(PatternTest, HanEqualsOnigurumas) {
  for (const char* regex : {"\\p{Han}", "[\\p{Han}&&[^a]]"}) {
    const Result<Pattern> pattern = Pattern::from_regex(regex);
    ASSERT_TRUE(pattern.ok()) << pattern.status().message();
    MatchScratch scratch;
    std::vector<Stretch> found;
    const auto is_han = [&](char32_t c) {
      std::string text;
      append_utf8(c, &text);
      found.clear();
      pattern->find_all(text, false, &scratch, &found);
      return found[0].matches;
    };
    EXPECT_EQ(ranges_of(is_han), kinds().at("characters").at("han").get<std::vector<uint32_t>>());
  }
}

// Tokens that are found as the normalizer writes them are decoded so, too
// (tests/golden/make_normalized_tokens.py).
TEST(TokenizerKindsTest, NormalizedTokensAreDecodedAsTheyAreWritten) {
  const json rows = read_golden("normalized_tokens.json");
  ASSERT_EQ(rows.size(), 96u);
  for (const json& row : rows) {
    json root = read_golden(row.at("kind").get<std::string>() + "/tokenizer.json");
    root["normalizer"] = row.at("normalizer");
    root["added_tokens"].push_back({{"id", row.at("id")},
                                    {"content", row.at("content")},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", true},
                                    {"special", row.at("special")}});
    const Result<Tokenizer> tokenizer = Tokenizer::parse(root.dump(), "tokenizer.json");
    ASSERT_TRUE(tokenizer.ok()) << row << ": " << tokenizer.status().message();
    for (size_t i = 0; i < row.at("texts").size(); ++i) {
      EXPECT_EQ(tokenizer->encode(row.at("texts")[i].get<std::string>(), false),
                row.at("ids")[i].get<std::vector<int32_t>>())
          << row;
    }
    for (size_t i = 0; i < row.at("ids").size(); ++i) {
      const auto ids = row.at("ids")[i].get<std::vector<int32_t>>();
      for (const bool skip : {true, false}) {
        const std::string expected = row.at("decoded")[i][skip ? 0 : 1];
        EXPECT_EQ(tokenizer->decode(ids, skip), expected) << row;
        StreamDecoder decoder(*tokenizer, skip);
        std::string text;
        for (const int32_t id : ids) text += decoder.push(id);
        EXPECT_EQ(text + decoder.flush(), expected) << row;
      }
    }
  }
}

}  // namespace
}  // namespace wideep::tokenizer
