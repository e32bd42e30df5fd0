// SPDX-License-Identifier: Apache-2.0
//
// Compares tokenizers in GGUF files with llama.cpp's (tests/golden/make_gguf_tokenizers.py).
#include "tokenizer/gguf_tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/sha256.h"
#include "formats/files.h"
#include "tensor_files/gguf_testing.h"
#include "tokenizer/gguf_patterns.h"
#include "tokenizer/golden_texts.h"
#include "tokenizer/pattern.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tokenizer {
namespace {

using tensor_files::GgufBuilder;
using testing::HasSubstr;

const std::string kDir = WIDEEP_SOURCE_DIR "/tests/golden/gguf/tokenizers/";

nlohmann::json golden_tokens() { return read_golden("../gguf/tokenizers/tokens.json"); }

std::string digest(const std::vector<int32_t>& ids) {
  base::Sha256 hash;
  hash.update(ids.data(), ids.size() * sizeof(int32_t));
  return hash.hex().substr(0, 6);
}

// The file with another name for how texts are cut.
std::string with_pre(const std::string& bytes, const std::string& before,
                     const std::string& after) {
  const std::string old_entry = GgufBuilder::text("tokenizer.ggml.pre") +
                                GgufBuilder::bytes_of<uint32_t>(8) + GgufBuilder::text(before);
  const std::string new_entry = GgufBuilder::text("tokenizer.ggml.pre") +
                                GgufBuilder::bytes_of<uint32_t>(8) + GgufBuilder::text(after);
  std::string changed = bytes;
  const size_t at = changed.find(old_entry);
  EXPECT_NE(at, std::string::npos);
  if (at != std::string::npos) changed.replace(at, old_entry.size(), new_entry);
  return changed;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  const nlohmann::json golden = golden_tokens();
  for (const auto& [name, digests] : golden.at("tokens").items()) all.push_back(name);
  return all;
}

class GgufTokens : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Golden, GgufTokens, testing::ValuesIn(names()), [](const auto& test) {
  std::string name = test.param;
  std::ranges::replace_if(
      name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST_P(GgufTokens, AreLlamaCpps) {
  const nlohmann::json golden = golden_tokens();
  const std::string name = GetParam();
  std::string source = name, pre;
  const nlohmann::json& named = golden.at("named");
  if (named.contains(name)) {
    source = named.at(name).at(1).get<std::string>();
    pre = name.substr(4);
  }
  auto bytes = formats::read_file(kDir + source + ".gguf");
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  if (!pre.empty()) *bytes = with_pre(*bytes, named.at(name).at(0).get<std::string>(), pre);
  const auto file =
      tensor_files::GgufFile::parse(std::as_bytes(std::span(bytes->data(), bytes->size())), name);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string path = testing::TempDir() + "/" + fmt::format("{}_{}.gguf", ::getpid(), name);
  ASSERT_TRUE(formats::write_file(path, *bytes).ok());
  const auto tokenizer = Tokenizer::read(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  std::istringstream digests(golden.at("tokens").at(name).get<std::string>());
  int differ = 0, index = 0;
  std::string first;
  const nlohmann::json cases = read_golden("cases.json");
  for (const nlohmann::json& row : cases.at("texts")) {
    std::string expected;
    digests >> expected;
    const std::string text = text_of(row);
    if (expected != "-" && digest(tokenizer->encode(text, true)) != expected) {
      ++differ;
      if (first.size() < 2000) first += fmt::format(" {}:{}", index, row.dump().substr(0, 80));
    }
    ++index;
  }
  EXPECT_EQ(differ, 0) << "of " << index << ":" << first;
}

std::string error_of(const GgufBuilder& builder) {
  const std::string bytes = builder.file();
  const auto file = tensor_files::GgufFile::parse(std::as_bytes(std::span(bytes)), "m");
  EXPECT_TRUE(file.ok()) << file.status().message();
  const auto parts = read_gguf_tokenizer(*file);
  EXPECT_FALSE(parts.ok());
  if (parts.ok()) return "";
  EXPECT_EQ(parts.status().exit_code(), 2);
  EXPECT_EQ(parts.status().message().find('\n'), std::string::npos);
  return parts.status().message();
}

// Trinity's, by llama.cpp's own function.
TEST(GgufTokenizer, TextsOfTrinity) {
  const GgufSplits* splits = find_splits("afmoe");
  ASSERT_NE(splits, nullptr);
  const auto cut = [&](std::string_view text) {
    std::vector<std::string_view> pieces = {text};
    for (const std::string_view regex : splits->patterns) {
      const auto pattern = Pattern::from_regex(regex);
      EXPECT_TRUE(pattern.ok()) << pattern.status().message();
      if (!pattern.ok()) return std::string();
      std::vector<std::string_view> cut;
      for (const std::string_view piece : pieces) {
        MatchScratch scratch;
        scratch.add_text(piece);
        pattern->split(piece, &scratch, &cut);
      }
      pieces = cut;
    }
    return fmt::format("{}", fmt::join(pieces, "|"));
  };
  EXPECT_EQ(cut("a\u4e2d\u6587b \u0e40\u0e01\u0e25 \ud55c\uad6d\uc5b4!"),
            "a|\u4e2d\u6587|b| |\u0e40|\u0e01\u0e25| |\ud55c\uad6d\uc5b4|!");
}

TEST(GgufTokenizer, BadInputIsOneLine) {
  const auto model = [](const char* name) {
    return GgufBuilder().string("tokenizer.ggml.model", name);
  };
  using Type = GgufBuilder::Type;
  EXPECT_THAT(error_of(GgufBuilder()),
              HasSubstr("tokenizer.ggml.model: expected gemma4, gpt2 or llama"));
  EXPECT_THAT(error_of(model("bert")), HasSubstr("found bert"));
  EXPECT_THAT(error_of(model("gpt2")), HasSubstr("tokens: expected a list of texts, found none"));
  EXPECT_THAT(error_of(model("gpt2").texts("tokenizer.ggml.tokens", {"a", "a"})),
              HasSubstr("'a' is token 0 and token 1"));
  EXPECT_THAT(error_of(model("gpt2")
                           .texts("tokenizer.ggml.tokens", {"a", "b"})
                           .list<int32_t>("tokenizer.ggml.token_type", Type::kI32, {1})),
              HasSubstr("token_type: expected a list of 2 numbers"));
  EXPECT_THAT(error_of(model("gpt2")
                           .texts("tokenizer.ggml.tokens", {"a"})
                           .list<int32_t>("tokenizer.ggml.token_type", Type::kI32, {7})),
              HasSubstr("token_type: expected 1 to 6, found 7"));
  const auto merges = [&](const char* merge) {
    return model("gpt2")
        .texts("tokenizer.ggml.tokens", {"a", "b", "ab"})
        .texts("tokenizer.ggml.merges", {merge});
  };
  for (const char* merge : {"", "ab", "a c", "b a", " a b"}) {
    EXPECT_THAT(error_of(merges(merge)), HasSubstr("merges: [0]: expected two tokens")) << merge;
  }
  EXPECT_THAT(error_of(merges("a b").string("tokenizer.ggml.pre", "unheard-of")),
              HasSubstr("pre: unheard-of is not supported; supported: "));
  EXPECT_THAT(error_of(merges("a b").string("tokenizer.ggml.pre", "qwen2")),
              HasSubstr("no token for the byte 0x00"));
  EXPECT_THAT(error_of(merges("a b")
                           .string("tokenizer.ggml.pre", "qwen2")
                           .integer("tokenizer.ggml.bos_token_id", 3)),
              HasSubstr("bos_token_id: expected a token from 0 to 2, found 3"));
  EXPECT_THAT(error_of(model("llama").texts("tokenizer.ggml.tokens", {"a"})),
              HasSubstr("scores: missing"));
  EXPECT_THAT(error_of(model("llama")
                           .texts("tokenizer.ggml.tokens", {"a", std::string(1025, 'a')})
                           .list<float>("tokenizer.ggml.scores", Type::kF32, {1, 2})),
              HasSubstr("tokens: expected texts of at most 1024 bytes, found 1025 for token 1"));
}

// GGUF's texts may be any bytes: no text has such a token, and it stands for U+FFFD.
TEST(GgufTokenizer, TokensMayBeNoText) {
  using Type = GgufBuilder::Type;
  const std::string bytes =
      GgufBuilder()
          .string("tokenizer.ggml.model", "llama")
          .texts("tokenizer.ggml.tokens",
                 {"<unk>", "é", "\xa9", "\xe2\x82", "\xf0", "\u2581", "\xc3"})
          .list<float>("tokenizer.ggml.scores", Type::kF32, {0, -1, -1, -1, -1, -1, -1})
          .list<int32_t>("tokenizer.ggml.token_type", Type::kI32, {2, 1, 4, 1, 4, 1, 3})
          .file();
  const auto file = tensor_files::GgufFile::parse(std::as_bytes(std::span(bytes)), "m");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::string path = testing::TempDir() + "/" + fmt::format("{}_no_text.gguf", ::getpid());
  ASSERT_TRUE(formats::write_file(path, bytes).ok());
  const auto tokenizer = Tokenizer::read(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->encode("é", false), (std::vector<int32_t>{5, 1}));
  const std::vector<int32_t> all = {1, 2, 3, 4, 1};
  EXPECT_EQ(tokenizer->decode(all, false), "é\uFFFD\uFFFD\uFFFDé");
  EXPECT_EQ(tokenizer->bytes(3), "\uFFFD");
}

TEST(GgufTokenizer, AsTokenizerJsonIsTheSame) {
  for (const char* name : {"qwen3", "mixtral", "lfm2"}) {
    const auto file = tensor_files::GgufFile::open(kDir + name + ".gguf");
    ASSERT_TRUE(file.ok()) << file.status().message();
    const auto json = gguf_tokenizer_json(*file);
    ASSERT_TRUE(json.ok()) << json.status().message();
    const auto written = Tokenizer::parse(*json, name);
    ASSERT_TRUE(written.ok()) << written.status().message();
    const auto read = Tokenizer::read(file->path());
    ASSERT_TRUE(read.ok());
    for (const char* text : {"Hello, world", "  two  spaces", "été 3.14 <s> 🚀"}) {
      EXPECT_EQ(written->encode(text, true), read->encode(text, true)) << name << ": " << text;
      // A space follows the special token that the text has: SentencePiece's, which is removed only
      // at the start.
      if (std::string_view(text).find('<') != std::string_view::npos) continue;
      EXPECT_EQ(read->decode(read->encode(text, false), true), text) << name;
    }
  }
}

// llama.cpp's own test: real vocabularies in $WIDEEP_GGUF_VOCABS (models/ggml-vocab-*.gguf of its
// source), texts in NAME.gguf.inp and their tokens in NAME.gguf.out.
TEST(GgufTokenizer, RealVocabularies) {
  const char* directory = std::getenv("WIDEEP_GGUF_VOCABS");
  if (directory == nullptr) GTEST_SKIP() << "no WIDEEP_GGUF_VOCABS";
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string path = entry.path().string();
    const auto texts = formats::read_file(path + ".inp");
    const auto ids = formats::read_file(path + ".out");
    if (!path.ends_with(".gguf") || !texts.ok() || !ids.ok()) continue;
    const auto tokenizer = Tokenizer::read(path);
    if (!tokenizer.ok()) {
      fmt::print("{}\n", tokenizer.status().message().substr(0, 200));
      continue;
    }
    constexpr std::string_view kBetween = "\n__ggml_vocab_test__\n";
    std::istringstream lines(*ids);
    std::string line;
    int number = 0;
    for (size_t at = 0; at < texts->size() && std::getline(lines, line); ++number) {
      const size_t end = std::min(texts->find(kBetween, at), texts->size());
      std::istringstream numbers(line);
      std::vector<int32_t> expected;
      for (int32_t id = 0; numbers >> id;) expected.push_back(id);
      const std::string text = texts->substr(at, end - at);
      EXPECT_EQ(tokenizer->encode(text, false), expected) << path << " " << number << ": " << text;
      at = end + kBetween.size();
    }
    fmt::print("{}: {} texts\n", entry.path().filename().string(), number);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

}  // namespace
}  // namespace wideep::tokenizer
