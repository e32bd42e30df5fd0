// SPDX-License-Identifier: Apache-2.0
//
// Compares ids and texts with those of the tokenizers library (tests/golden/make_tokenizers.py).
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "tokenizer/golden_texts.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

using nlohmann::json;

const json& golden_cases() {
  static const json cases = read_golden("cases.json");
  return cases;
}

std::string sha256_of(const void* data, size_t num_bytes) {
  base::Sha256 hash;
  hash.update(data, num_bytes);
  return hash.hex();
}

// Digests are computed over the ids as little-endian int32.
static_assert(std::endian::native == std::endian::little);

void expect_ids(const json& expected, const std::vector<int32_t>& ids) {
  if (expected.contains("ids")) {
    EXPECT_EQ(ids, expected.at("ids").get<std::vector<int32_t>>());
  } else {
    EXPECT_EQ(ids.size(), expected.at("count").get<size_t>());
    EXPECT_EQ(sha256_of(ids.data(), ids.size() * sizeof(int32_t)),
              expected.at("sha256").get<std::string>());
  }
}

void expect_text(const json& expected, const std::string& text) {
  if (expected.is_string()) {
    EXPECT_EQ(text, expected.get<std::string>());
  } else {
    EXPECT_EQ(sha256_of(text.data(), text.size()), expected.at("sha256").get<std::string>());
  }
}

std::string stream(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip) {
  StreamDecoder decoder(tokenizer, skip);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(piece));
    text += piece;
  }
  return text + decoder.flush();
}

class GoldenTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    Result<Tokenizer> tokenizer = Tokenizer::read(golden_path(GetParam()));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = std::move(*tokenizer);
  }

  std::optional<Tokenizer> tokenizer_;
};

TEST_P(GoldenTest, EncodesLikeTheLibrary) {
  const json& rows = golden_cases().at("texts");
  ASSERT_GE(rows.size(), 700u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump().substr(0, 300));
    expect_ids(row.at(GetParam()), tokenizer_->encode(text_of(row)));
  }
}

TEST_P(GoldenTest, DecodesLikeTheLibrary) {
  for (const json& row : golden_cases().at("texts")) {
    SCOPED_TRACE(row.dump().substr(0, 300));
    const std::string text = text_of(row);
    const std::vector<int32_t> ids = tokenizer_->encode(text, false);
    const json& expected = row.at(GetParam());
    const json decoded = expected.value("decoded", json(replace_invalid_utf8(text)));
    expect_text(decoded, tokenizer_->decode(ids));
    expect_text(decoded, stream(*tokenizer_, ids, true));
    const json decoded_all = expected.value("decoded_all", decoded);
    expect_text(decoded_all, tokenizer_->decode(ids, false));
    expect_text(decoded_all, stream(*tokenizer_, ids, false));
  }
}

TEST_P(GoldenTest, DecodesIncompleteCharactersLikeTheLibrary) {
  const json& rows = golden_cases().at("decodes").at(GetParam());
  ASSERT_GE(rows.size(), 40u);
  for (const json& row : rows) {
    SCOPED_TRACE(row.dump());
    const auto ids = row.at("ids").get<std::vector<int32_t>>();
    expect_text(row.at("decoded"), tokenizer_->decode(ids));
    expect_text(row.at("decoded"), stream(*tokenizer_, ids, true));
    expect_text(row.at("decoded_all"), tokenizer_->decode(ids, false));
    expect_text(row.at("decoded_all"), stream(*tokenizer_, ids, false));
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest, testing::Values("qwen3", "deepseek_v3", "options"),
                         [](const auto& suite) { return suite.param; });

// The reference model's tokenizer has no normalizer, so decoding gives back every text.
TEST(ReferenceTokenizerTest, KeepsEveryText) {
  const std::string folder = WIDEEP_SOURCE_DIR "/models/reference";
  if (!std::filesystem::exists(folder + "/tokenizer.json")) {
    GTEST_SKIP() << "no " << folder << "/tokenizer.json in this checkout";
  }
  const Result<Tokenizer> tokenizer = Tokenizer::read(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  for (const json& row : golden_cases().at("texts")) {
    const std::string text = text_of(row);
    const std::vector<int32_t> ids = tokenizer->encode(text, false);
    EXPECT_EQ(tokenizer->decode(ids, false), replace_invalid_utf8(text));
  }
}

}  // namespace
}  // namespace wideep::tokenizer
