// SPDX-License-Identifier: Apache-2.0
//
// A small tokenizer.json is changed in one place at a time; a table says which line must refuse
// each change. A step that was skipped would give other ids without an error, and a model answers
// any ids. What is added by other files of a model is held against ids of transformers with the
// same files, and decoders against the tokenizers library. A stream must give the text of the
// whole, and never half of a character.
#include "tokenizer/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>

#include "base/scratch_directory.h"
#include "formats/files.h"
#include "tokenizer/small_tokenizer.h"
#include "tokenizer/stream_decoder.h"

namespace wideep::tokenizer {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

Tokenizer small() {
  Result<Tokenizer> tokenizer = Tokenizer::parse(small_tokenizer_json().dump(), "small");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return *tokenizer;
}

TEST(TokenizerTest, EncodesAndDecodes) {
  const Tokenizer tokenizer = small();
  EXPECT_THAT(tokenizer.encode("the thin<eos>"), ElementsAre(257, ' ', 256, 258, 264));
  EXPECT_THAT(tokenizer.encode(""), ElementsAre());
  const std::vector<int32_t> ids = {257, 264, 262, 265, 99999, -1};
  EXPECT_EQ(tokenizer.decode(ids), "the the<think>");
  EXPECT_EQ(tokenizer.decode(ids, false), "the<eos> the<think>");
}

TEST(TokenizerTest, FindsTokensAndIds) {
  const Tokenizer tokenizer = small();
  EXPECT_EQ(tokenizer.vocab_size(), 266u);
  EXPECT_EQ(tokenizer.id_limit(), 266);
  EXPECT_EQ(tokenizer.token_to_id("Ġthe"), 262);
  EXPECT_EQ(tokenizer.token_to_id("<eos>"), 264);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(262), "Ġthe");
  EXPECT_EQ(tokenizer.bytes(262), " the");
  EXPECT_EQ(tokenizer.id_to_token(266), "");
  EXPECT_EQ(tokenizer.bytes(-5), "");
  EXPECT_TRUE(tokenizer.is_special(264));
  EXPECT_FALSE(tokenizer.is_special(265));
}

TEST(TokenizerTest, IdsMayHaveHoles) {
  json value = small_tokenizer_json();
  value["model"]["vocab"]["unused"] = 1000;
  value["added_tokens"][0]["id"] = 265;  // the library counts tokens, not ids
  value["added_tokens"][1]["id"] = 266;
  const Result<Tokenizer> tokenizer = Tokenizer::parse(value.dump(), "holes");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocab_size(), 267u);
  EXPECT_EQ(tokenizer->id_limit(), 1001);
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{265 + 100, 't'}), "t");
}

TEST(TokenizerTest, AddedTokenOfTheModelKeepsItsId) {
  json value = small_tokenizer_json();
  value["added_tokens"].push_back(value["added_tokens"][1]);
  value["added_tokens"][2]["content"] = "in";
  value["added_tokens"][2]["id"] = 258;
  const Result<Tokenizer> tokenizer = Tokenizer::parse(value.dump(), "in");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer->vocab_size(), 266u);
}

TEST(TokenizerTest, ThreadsMayShareATokenizer) {
  const Tokenizer tokenizer = small();
  const std::string text = "the thinner <think> the 12 three's \u00E9";
  const std::vector<int32_t> expected = tokenizer.encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& mistakes : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const Tokenizer copy = tokenizer;
        mistakes += copy.encode(text) != expected || copy.decode(expected) != text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(wrong, testing::Each(0));
}

TEST(StreamDecoderTest, KeepsBackUnfinishedCharacters) {
  StreamDecoder decoder(small());
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push(0xB8), "");
  EXPECT_EQ(decoder.push(264), "");  // special tokens are left out, even inside a character
  EXPECT_EQ(decoder.push(0xAD), "\u4E2D");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push('b'), "\uFFFDb");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(decoder.push('c'), "c");
}

// A pattern whose parts match the same characters in many ways takes a power of the text's length.
TEST(TokenizerTest, WorkOfPatternsIsBounded) {
  json root = small_tokenizer_json();
  json steps = json::array();
  steps.push_back({{"type", "Split"},
                   {"pattern", {{"Regex", "a*a*a*a*a*a*b|\\p{L}+|[^\\p{L}]"}}},
                   {"behavior", "Isolated"},
                   {"invert", false}});
  root["pre_tokenizer"]["use_regex"] = false;
  steps.push_back(root["pre_tokenizer"]);
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  const Result<Tokenizer> tokenizer = Tokenizer::parse(root.dump(), "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const std::string text(20'000, 'a');
  const auto refused = tokenizer->encode_within_limits(text);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "a pattern of the tokenizer takes too long for this text of 20000 bytes: its parts can "
            "match the same characters in too many ways");
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  const auto taken = tokenizer->encode_within_limits("aaab cd");
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(tokenizer->decode(*taken), "aaab cd");
  // Long runs take no more than a few steps for each byte.
  for (const char c : {' ', '\n', 'x', '1', '!'}) {
    const Tokenizer usual = *Tokenizer::parse(small_tokenizer_json().dump(), "tokenizer.json");
    EXPECT_TRUE(usual.encode_within_limits(std::string(300'000, c)).ok()) << c;
    EXPECT_TRUE(usual.encode_within_limits(std::string(300'000, c) + "x\n").ok()) << c;
  }
}

TEST(TokenizerReadTest, ReadsADirectoryOrAFile) {
  const base::ScratchDirectory scratch;
  const std::string file = scratch.file("tokenizer.json");
  ASSERT_TRUE(formats::write_file(file, small_tokenizer_json().dump()).ok());
  EXPECT_TRUE(Tokenizer::read(scratch.path()).ok());
  EXPECT_TRUE(Tokenizer::read(file).ok());
}

// ---- tokens of other files; the ids are those of transformers 5.24 with the same files ----

class TokensOfOtherFiles : public testing::Test {
 protected:
  TokensOfOtherFiles() { write("tokenizer.json", small_tokenizer_json()); }

  void write(const std::string& name, const json& content) {
    ASSERT_TRUE(formats::write_file(scratch_.file(name), content.dump()).ok());
  }
  Tokenizer read(int32_t limit = 1000) {
    Result<Tokenizer> tokenizer = Tokenizer::read(scratch_.path(), limit);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return *tokenizer;
  }
  static json flags(const char* content, bool lstrip, bool special) {
    return {{"content", content},  {"lstrip", lstrip},     {"rstrip", false},
            {"normalized", false}, {"single_word", false}, {"special", special}};
  }

  base::ScratchDirectory scratch_;
};

TEST_F(TokensOfOtherFiles, AddedTokensDecoderAddsAndChanges) {
  write("tokenizer_config.json",
        {{"added_tokens_decoder",
          {{"266", flags("<|new|>", false, true)}, {"265", flags("<think>", true, false)}}}});
  const Tokenizer tokenizer = read();
  EXPECT_THAT(tokenizer.encode("<|new|>the"), testing::ElementsAre(266, 257));
  EXPECT_TRUE(tokenizer.is_special(266));
  EXPECT_THAT(tokenizer.encode("the <think>"), testing::ElementsAre(257, 265));  // lstrip
}

TEST_F(TokensOfOtherFiles, AddedTokensJsonAndNamedTokens) {
  write("added_tokens.json", {{"<a>", 266}, {"<b>", 267}});
  write("special_tokens_map.json", {{"eos_token", "<b>"}, {"pad_token", {{"content", "<pad>"}}}});
  const Tokenizer tokenizer = read();
  EXPECT_THAT(tokenizer.encode("<a><b><pad>"), testing::ElementsAre(266, 267, 268));
  EXPECT_FALSE(tokenizer.is_special(266));
  EXPECT_TRUE(tokenizer.is_special(267));
  EXPECT_TRUE(tokenizer.is_special(268));
  // Where the model has no such token, it stays text, and a line says so.
  const Tokenizer limited = read(268);
  EXPECT_EQ(limited.id_limit(), 268);
  EXPECT_THAT(limited.notes(), testing::ElementsAre(HasSubstr("'<pad>' would be token 268")));
}

// White space that is an added token, after a token that takes white space: what the tokenizers
// library gives (it fails where a second white space follows).
TEST_F(TokensOfOtherFiles, WhiteSpaceThatBelongsToTheTokenBefore) {
  json space = flags(" ", true, false), taking = flags("<r>", false, false),
       tab = flags("\t", true, false);
  taking["rstrip"] = tab["rstrip"] = true;
  write("tokenizer_config.json",
        {{"added_tokens_decoder", {{"266", taking}, {"267", space}, {"268", tab}}}});
  const Tokenizer tokenizer = read();
  const auto x = tokenizer.encode("x");
  EXPECT_THAT(tokenizer.encode("<r> x"), testing::ElementsAre(266, x[0]));
  EXPECT_THAT(tokenizer.encode("<r>\tx"), testing::ElementsAre(266, x[0]));
  EXPECT_THAT(tokenizer.encode("<r> <r>x"), testing::ElementsAre(266, 266, x[0]));
  EXPECT_THAT(tokenizer.encode("x <r> x"), testing::ElementsAre(x[0], 267, 266, x[0]));
}

// The ids are those of transformers 4.57 with the same files.
TEST_F(TokensOfOtherFiles, LlamasClassesAddTheirEndsInsteadOfTheFiles) {
  const auto with = [&](const char* name, std::optional<bool> bos, std::optional<bool> eos) {
    json config = {{"bos_token", "<think>"}, {"eos_token", "<eos>"}};
    if (name != nullptr) config["tokenizer_class"] = name;
    if (bos) config["add_bos_token"] = *bos;
    if (eos) config["add_eos_token"] = *eos;
    write("tokenizer_config.json", config);
    return read();
  };
  using Ids = std::vector<int32_t>;
  json templated = small_tokenizer_json();
  templated["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single",
       {{{"SpecialToken", {{"id", "<think>"}, {"type_id", 0}}}},
        {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", json::array()},
      {"special_tokens",
       {{"<think>", {{"id", "<think>"}, {"ids", {265}}, {"tokens", {"<think>"}}}}}}};
  for (const json& file : {small_tokenizer_json(), templated}) {
    write("tokenizer.json", file);
    const bool is_templated = file == templated;
    for (const char* name : {"LlamaTokenizerFast", "LlamaTokenizer", "CohereTokenizerFast"}) {
      EXPECT_EQ(with(name, {}, {}).encode("the"), (Ids{265, 257})) << name;
      EXPECT_EQ(with(name, true, false).encode("the"), (Ids{265, 257}));
      EXPECT_EQ(with(name, false, {}).encode("the"), (Ids{257}));
      EXPECT_EQ(with(name, {}, true).encode("the"), (Ids{265, 257, 264}));
      EXPECT_EQ(with(name, false, true).encode("the"), (Ids{257, 264}));
      EXPECT_EQ(with(name, true, true).encode("the", false), (Ids{257}));
      EXPECT_THAT(with(name, true, true).notes(), testing::IsEmpty());
    }
    EXPECT_EQ(with("GPTNeoXTokenizerFast", {}, {}).encode("the"), (Ids{257}));
    // Others add what tokenizer.json says; a line names a key that asks for something else.
    const Ids own = is_templated ? Ids{265, 257} : Ids{257};
    for (const char* name : {"PreTrainedTokenizerFast", "Qwen2Tokenizer", (const char*)nullptr}) {
      EXPECT_EQ(with(name, {}, {}).encode("the"), own);
      EXPECT_EQ(with(name, true, true).encode("the"), own);
      EXPECT_EQ(with(name, false, false).encode("the"), own);
      EXPECT_THAT(with(name, is_templated, false).notes(), testing::IsEmpty());
      EXPECT_THAT(
          with(name, !is_templated, {}).notes(),
          testing::ElementsAre(HasSubstr(is_templated ? "add_bos_token: false is not used"
                                                      : "add_bos_token: true is not used")));
      EXPECT_THAT(with(name, {}, true).notes(),
                  testing::ElementsAre(HasSubstr("add_eos_token: true is not used")));
    }
  }
  write("tokenizer_config.json", {{"tokenizer_class", "LlamaTokenizer"}});
  EXPECT_THAT(
      Tokenizer::read(scratch_.path()).status().message(),
      HasSubstr("LlamaTokenizer adds '<s>' to every text (add_bos_token), and there is no"));
}

TEST_F(TokensOfOtherFiles, WrongIdsAreRefused) {
  write("tokenizer_config.json",
        {{"added_tokens_decoder", {{"300", flags("<|new|>", false, true)}}}});
  EXPECT_THAT(Tokenizer::read(scratch_.path()).status().message(),
              HasSubstr("tokenizer_config.json: token '<|new|>' has id 300, expected 266"));
  write("tokenizer_config.json", {{"eos_token", 3}});
  EXPECT_THAT(Tokenizer::read(scratch_.path()).status().message(),
              HasSubstr("tokenizer_config.json: eos_token: expected a token"));
}

TEST(TokenizerReadTest, SentencePiecesOwnFormatIsRefused) {
  const base::ScratchDirectory scratch;
  ASSERT_TRUE(formats::write_file(scratch.file("tokenizer.model"), "x").ok());
  EXPECT_THAT(Tokenizer::read(scratch.path()).status().message(),
              HasSubstr("tokenizer.model: SentencePiece's own format is not supported"));
}

TEST(TokenizerReadTest, ErrorNamesTheMissingFile) {
  const Result<Tokenizer> tokenizer = Tokenizer::read("/nowhere/model");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("/nowhere/model"));
}

TEST(TokenizerParseTest, ModelOfOldFilesHasNoType) {
  json file = small_tokenizer_json();
  file["model"].erase("type");
  const Result<Tokenizer> tokenizer = Tokenizer::parse(file.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT(tokenizer->encode("the"), testing::ElementsAre(257));
}

TEST(TokenizerParseTest, PaddingAndTruncationAreNamed) {
  json file = small_tokenizer_json();
  file["padding"] = {{"strategy", "BatchLongest"}, {"pad_id", 0}};
  file["truncation"] = {{"max_length", 2}};
  const Result<Tokenizer> tokenizer = Tokenizer::parse(file.dump(), "t.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT(tokenizer->notes(), testing::ElementsAre("t.json: padding: no effect on prompts",
                                                       "t.json: truncation: no effect on prompts"));
  EXPECT_EQ(tokenizer->encode("xyz!").size(), 4u);
}

void expect_refused(const std::string& text, const std::string& message) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(text, "t.json");
  ASSERT_FALSE(tokenizer.ok()) << message;
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(tokenizer.status().message(), testing::StartsWith("t.json:"));
  EXPECT_THAT(tokenizer.status().message(), HasSubstr(message));
  EXPECT_EQ(tokenizer.status().message().find('\n'), std::string::npos);
}

TEST(TokenizerParseTest, RefusesTruncatedJson) {
  const std::string text = small_tokenizer_json().dump();
  for (size_t size = 0; size < text.size(); size += 97) {
    expect_refused(text.substr(0, size), "not valid JSON");
  }
  expect_refused("[]", "expected an object");
}

// A change to a valid file, and the expected error message.
struct Change {
  const char* name;
  std::function<void(json&)> apply;
  const char* message;
};

// Sets the value at a JSON pointer.
std::function<void(json&)> set(const char* pointer, json value) {
  return [=](json& root) { root[json::json_pointer(pointer)] = value; };
}

std::function<void(json&)> erase(const char* parent, const char* key) {
  return [=](json& root) { root[json::json_pointer(parent)].erase(key); };
}

class RefusedTokenizerTest : public testing::TestWithParam<Change> {};

TEST_P(RefusedTokenizerTest, ErrorNamesKeyAndReason) {
  json value = small_tokenizer_json();
  GetParam().apply(value);
  expect_refused(value.dump(), GetParam().message);
}

std::string change_name(const testing::TestParamInfo<Change>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Root, RefusedTokenizerTest,
                         testing::Values(Change{"Key", set("/normaliser", nullptr),
                                                "normaliser: unknown key; did you mean"},
                                         Change{"Version", set("/version", "2.0"),
                                                "version: '2.0' is not supported"},
                                         Change{"NoModel", erase("", "model"), "model: missing"}),
                         change_name);

INSTANTIATE_TEST_SUITE_P(
    Model, RefusedTokenizerTest,
    testing::Values(
        Change{"Type", set("/model/type", "Unigram"), "model.type: 'Unigram' is not supported"},
        Change{"NoType",
               [](json& root) {
                 root["model"].erase("type");
                 root["model"].erase("merges");
               },
               "model.type: missing"},
        Change{"WordPiece", set("/model/type", "WordPiece"), "model.type: 'WordPiece' is not"},
        Change{"NoUnknown", set("/pre_tokenizer", nullptr), "model.unk_token: missing: characters"},
        Change{"UnknownToken",
               [](json& root) {
                 root["pre_tokenizer"] = nullptr;
                 root["model"]["unk_token"] = "<unk>";
               },
               "model.unk_token: token '<unk>' is not in model.vocab"},
        Change{"ByteTokens",
               [](json& root) {
                 root["pre_tokenizer"] = nullptr;
                 root["model"]["byte_fallback"] = true;
               },
               "model.unk_token: missing: characters"},
        Change{"Key", set("/model/cache", 1), "model.cache: unknown key"},
        Change{"Dropout", set("/model/dropout", 0.1), "model.dropout: 0.1 is not supported"},
        Change{"Prefix", set("/model/continuing_subword_prefix", "##"), "'##' is not supported"},
        Change{"Suffix", set("/model/end_of_word_suffix", "</w>"), "'</w>' is not supported"},
        Change{"NoVocab", erase("/model", "vocab"), "model.vocab: missing"},
        Change{"VocabList", set("/model/vocab", json::array()), "model.vocab: expected an object"},
        Change{"NoByte", erase("/model/vocab", "A"), "no token for the byte 0x41 ('A')"},
        Change{"NoMerges", erase("/model", "merges"), "model.merges: expected a list"},
        Change{"IdText", set("/model/vocab/x", "1"), "token 'x' has id '1'; expected an integer"},
        Change{"IdFraction", set("/model/vocab/x", 1.5), "token 'x' has id 1.5"},
        Change{"IdNegative", set("/model/vocab/x", -1), "token 'x' has id -1; expected 0 to"},
        Change{"IdHuge", set("/model/vocab/x", 1 << 24), "expected 0 to 16777215"},
        Change{"IdBeyond", set("/model/vocab/x", ~uint64_t{0}), "expected an integer"},
        Change{"IdTwice", set("/model/vocab/the", 'a'), "both have id 97"},
        Change{"EmptyToken", [](json& root) { root["model"]["vocab"][""] = 999; }, "empty token"},
        Change{"MergeOfNothing", set("/model/merges/2", "i Zzz"),
               "model.merges[2]: token 'Zzz' is not in model.vocab"},
        Change{"MergeToNothing", set("/model/merges/2", "e i"), "merges[2]: token 'ei' is not in"},
        Change{"MergeOfThree", set("/model/merges/0", "a b c"), "merges[0]: expected two tokens"},
        Change{"MergeNumber", set("/model/merges/1", 5), "merges[1]: expected two tokens"},
        Change{"MergeList", set("/model/merges/1", json{"a", 1}), "merges[1]: expected two"}),
    change_name);

INSTANTIATE_TEST_SUITE_P(
    AddedTokens, RefusedTokenizerTest,
    testing::Values(
        Change{"NoList", set("/added_tokens", 5), "added_tokens: expected a list of objects"},
        Change{"NoObject", set("/added_tokens/0", "x"), "added_tokens[0]: expected an object"},
        Change{"Key", set("/added_tokens/0/stripped", true), "added_tokens[0].stripped: unknown"},
        Change{"NoFlag", erase("/added_tokens/0", "special"), "added_tokens[0].special: missing"},
        Change{"Empty", set("/added_tokens/0/content", ""), "added_tokens[0].content: empty"},
        Change{"Hole", set("/added_tokens/1/id", 300), "token '<think>' has id 300, expected 265"},
        Change{"IdTwice", set("/added_tokens/1/id", 264), "has id 264, expected 265"},
        Change{"IdRange", set("/added_tokens/1/id", -3), "added_tokens[1].id: expected"},
        Change{"Twice", set("/added_tokens/1/content", "<eos>"), "'<eos>' is added twice"},
        Change{"OtherId", set("/added_tokens/1/content", "in"),
               "has id 265, expected 258: its id in model.vocab"},
        Change{"IdTaken",
               [](json& root) {
                 root["model"]["vocab"]["unused"] = 265;
                 root["added_tokens"][0]["id"] = 265;
               },
               "tokens 'unused' and '<eos>' both have id 265"},
        Change{"Normalized",
               [](json& root) {
                 root["normalizer"] = {{"type", "StripAccents"}};
                 root["added_tokens"][0]["normalized"] = true;
                 root["added_tokens"][0]["content"] = "\u0301";
               },
               "added_tokens: the normalizer leaves nothing of '\\xcc\\x81'"}),
    change_name);

const json kFuse = {{"type", "Fuse"}};

json sequence(const char* list, json steps) { return {{"type", "Sequence"}, {list, steps}}; }

json split_step(json pattern, const char* behavior = "Isolated", bool invert = false) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", invert}};
}

std::function<void(json&)> before_byte_level(json step) {
  return [=](json& root) {
    root["pre_tokenizer"] = sequence("pretokenizers", {step, root["pre_tokenizer"]});
  };
}

INSTANTIATE_TEST_SUITE_P(
    Steps, RefusedTokenizerTest,
    testing::Values(
        Change{"Normalizer", set("/normalizer", json{{"type", "Precompiled"}}),
               "normalizer.type: 'Precompiled' is not supported; expected 'NFC'"},
        Change{"NormalizerInside",
               set("/normalizer", sequence("normalizers", json::array({{{"type", "Strip"}}}))),
               "normalizer.normalizers[0].strip_left: missing"},
        Change{"ReplacePattern",
               set("/normalizer",
                   json{{"type", "Replace"}, {"pattern", {{"Regex", "a*"}}}, {"content", ""}}),
               "normalizer.pattern.Regex: the pattern 'a*' matches the empty text"},
        Change{"PreTokenizer", set("/pre_tokenizer/type", "UnicodeScripts"), "model.unk_token"},
        Change{"PreTokenizerFlag", erase("/pre_tokenizer", "add_prefix_space"),
               "pre_tokenizer.add_prefix_space: missing"},
        Change{"Scripts", before_byte_level({{"type", "UnicodeScripts"}}),
               "pre_tokenizer.pretokenizers[0].type: 'UnicodeScripts' is not supported"},
        Change{"Digits", before_byte_level({{"type", "Digits"}}),
               "pre_tokenizer.pretokenizers[0].individual_digits: missing"},
        Change{"Metaspace", before_byte_level({{"type", "Metaspace"}, {"replacement", "ab"}}),
               "pretokenizers[0].replacement: 'ab' is not supported; expected one character"},
        Change{"MetaspaceScheme",
               before_byte_level(
                   {{"type", "Metaspace"}, {"replacement", "_"}, {"add_prefix_space", false}}),
               "add_prefix_space: false is not supported; expected true, or prepend_scheme"},
        Change{"TwoByteLevels", before_byte_level(small_tokenizer_json()["pre_tokenizer"]),
               "pretokenizers[0].type: 'ByteLevel' is not supported; expected 'Split', "},
        Change{"Behavior", before_byte_level(split_step({{"Regex", "a"}}, "Merged")),
               "pretokenizers[0].behavior: 'Merged' is not supported; expected 'Removed', "},
        Change{"Pattern", before_byte_level(split_step({{"Regex", "\\w+"}})),
               "pattern.Regex: the escape '\\w' at byte 0"},
        Change{"NoPattern", before_byte_level(split_step(json::object())),
               "pattern: expected one of the keys 'Regex' and 'String'"},
        Change{"EmptyString", before_byte_level(split_step({{"String", ""}})),
               "pattern.String: the pattern '' matches the empty text"},
        Change{"PostProcessor", set("/post_processor", json{{"type", "BertProcessing"}}),
               "post_processor.type: 'BertProcessing' is not supported"},
        Change{"NoDecoder", set("/decoder", nullptr), "decoder: null is not supported"},
        Change{"Decoder", set("/decoder", json{{"type", "WordPiece"}}),
               "decoder.type: 'WordPiece' is not supported; expected 'ByteLevel' alone"},
        Change{"ByteLevelDecoderInside",
               set("/decoder", sequence("decoders", {small_tokenizer_json()["decoder"], kFuse})),
               "decoder.decoders[0].type: 'ByteLevel' is not"},
        Change{"FallbackAfterFuse",
               set("/decoder", sequence("decoders", {kFuse, {{"type", "ByteFallback"}}})),
               "decoder.decoders[1].type: 'ByteFallback' is not supported; expected"},
        Change{"ReplaceAfterFuse",
               set("/decoder", sequence("decoders", {kFuse,
                                                     {{"type", "Replace"},
                                                      {"pattern", {{"String", "ab"}}},
                                                      {"content", ""}}})),
               "decoder.decoders[1].type: 'Replace' is not supported; expected 'Replace' before"},
        Change{
            "StripContent",
            set("/decoder", json{{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}),
            "decoder.content: 'ab' is not supported; expected one character"}),
    change_name);

// What the tokenizers library gives for tokens "  a  ".
TEST(DecoderTest, StripsBothEnds) {
  const auto decoded = [](json decoder) {
    json value = small_tokenizer_json();
    value["model"]["vocab"]["  a  "] = 300;
    value["added_tokens"] = json::array();
    value["decoder"] = std::move(decoder);
    const Result<Tokenizer> tokenizer = Tokenizer::parse(value.dump(), "strip");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const std::vector<int32_t> ids = {300, 300};
    StreamDecoder stream(*tokenizer);
    std::string streamed = stream.push(300) + stream.push(300);
    streamed += stream.flush();
    EXPECT_EQ(streamed, tokenizer->decode(ids));
    return streamed;
  };
  const auto strip = [](int start, int stop) {
    return json{{"type", "Strip"}, {"content", " "}, {"start", start}, {"stop", stop}};
  };
  EXPECT_EQ(decoded(strip(1, 0)), " a   a  ");
  EXPECT_EQ(decoded(strip(1, 1)), " a  a ");
  EXPECT_EQ(decoded(strip(0, 3)), "  a  a");
  EXPECT_EQ(decoded(sequence("decoders", {kFuse, strip(1, 0)})), " a    a  ");
  EXPECT_EQ(decoded(sequence("decoders", {kFuse, strip(1, 1)})), " a    a ");
  EXPECT_EQ(decoded(sequence("decoders", {kFuse, strip(0, 3)})), "  a    a");
}

json template_step(json single, json ids = {264}) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", json::array()},
          {"special_tokens", {{"<eos>", {{"id", "<eos>"}, {"ids", ids}, {"tokens", {"<eos>"}}}}}}};
}

const json kText = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
const json kEos = {{"SpecialToken", {{"id", "<eos>"}, {"type_id", 0}}}};
const json kBos = {{"SpecialToken", {{"id", "<bos>"}, {"type_id", 0}}}};

TEST(TokenizerParseTest, AddsTheTokensOfTheTemplate) {
  json value = small_tokenizer_json();
  value["post_processor"] = template_step({kEos, kText, kEos, kEos});
  const Result<Tokenizer> tokenizer = Tokenizer::parse(value.dump(), "template");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_THAT(tokenizer->encode("x"), ElementsAre(264, 'x', 264, 264));
  EXPECT_THAT(tokenizer->encode("x", false), ElementsAre('x'));
}

INSTANTIATE_TEST_SUITE_P(
    Template, RefusedTokenizerTest,
    testing::Values(Change{"NoText", set("/post_processor", template_step(json::array({kEos}))),
                           "post_processor.single: expected the sequence once, found it 0 times"},
                    Change{"TextTwice", set("/post_processor", template_step({kText, kText})),
                           "found it 2"},
                    Change{"Unlisted", set("/post_processor", template_step({kBos, kText})),
                           "post_processor.special_tokens.<bos>: missing"},
                    Change{"NoSuchId", set("/post_processor", template_step({kEos, kText}, {5000})),
                           "special_tokens.<eos>.ids: the tokenizer has no token with id 5000"},
                    Change{"Text", set("/post_processor", template_step("$A <eos>")),
                           "post_processor.single: expected a list of objects"}),
    change_name);

}  // namespace
}  // namespace wideep::tokenizer
