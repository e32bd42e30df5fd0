// SPDX-License-Identifier: Apache-2.0
//
// A table from names to expressions. Many differ in one element only (digits one by one or in
// threes, contractions, marks as letters), so they are put together from pieces; macros, because
// only literals join at compile time. The order of alternatives is part of an expression: the first
// that matches counts.
#include "tokenizer/gguf_patterns.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

namespace wideep::tokenizer {
namespace {

// The end of most expressions: punctuation, line ends, white space.
#define WIDEEP_ENDS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define WIDEEP_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kThreeDigits = R"(\p{N}{1,3})";
constexpr std::string_view kLlama3 = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kQwen2 =
    WIDEEP_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kQwen35 = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kManyDigits = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kNoContractions =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kSeedCoder =
    WIDEEP_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|)" WIDEEP_ENDS;
constexpr std::string_view kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|)"
    R"(\s+(?!\S)|\s+)";
// Words of several words, which spaces divide.
constexpr std::string_view kExaoneMoe = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S))"
    R"(|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";

// Words of upper, then lower case letters.
#define WIDEEP_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define WIDEEP_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define WIDEEP_CASED(CONTRACTIONS)                                       \
  R"([^\r\n\p{L}\p{N}]?)" WIDEEP_UPPER "*" WIDEEP_LOWER "+" CONTRACTIONS \
  R"(|[^\r\n\p{L}\p{N}]?)" WIDEEP_UPPER "+" WIDEEP_LOWER "*" CONTRACTIONS
constexpr std::string_view kGpt4o =
    WIDEEP_CASED(WIDEEP_CONTRACTIONS "?") R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" WIDEEP_ENDS;
constexpr std::string_view kTekken =
    WIDEEP_CASED("") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" WIDEEP_ENDS;
constexpr std::string_view kYoutu =
    WIDEEP_CASED(WIDEEP_CONTRACTIONS "?") R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" WIDEEP_ENDS;
constexpr std::string_view kYoutuScripts =
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-"
    "ゟ゠-"
    "ヿ]"
    "+";
constexpr std::string_view kKimi =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" WIDEEP_ENDS;

constexpr std::string_view kLineEnd = R"([\r\n])";
constexpr std::string_view kHanAndKana = "[一-龥぀-ゟ゠-ヿ]+";
constexpr std::string_view kHanAndHangul = "[一-龥ࠀ-一가-퟿]+";
#define WIDEEP_ASCII_WORD R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+)"
#define WIDEEP_MARKED_WORD R"(|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
constexpr std::string_view kDeepseek3 =
    WIDEEP_ASCII_WORD WIDEEP_MARKED_WORD R"(| ?[\p{P}\p{S}]+[\r\n]*|)" WIDEEP_ENDS;
constexpr std::string_view kSpark =
    WIDEEP_ASCII_WORD WIDEEP_MARKED_WORD R"(| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
// Digits in threes from the right.
constexpr std::string_view kRightThrees = R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))";
// Scripts of Asia, in llama.cpp's ranges: some are wider than blocks (U+8C48 to U+FAFF), or
// narrower.
constexpr std::string_view kAsianScripts =
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f"
    "\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f"
    "\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+";
// The letters with case, of all scripts that have it.
constexpr std::string_view kDeepseekLetters =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386"
    "\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA"
    "\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15"
    "\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B"
    "\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4"
    "\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4"
    "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124"
    "\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F"
    "\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4"
    "\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F"
    "\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17"
    "\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+";
constexpr std::string_view kDeepseekMarks = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|`]+)";
constexpr std::string_view kPunctuationOfDefault = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

const std::map<std::string_view, GgufSplits, std::less<>>& all_splits() {
  static const auto* const kAll = [] {
    auto* all = new std::map<std::string_view, GgufSplits, std::less<>>();
    const auto add = [&](const GgufSplits& splits, std::initializer_list<std::string_view> names) {
      for (const std::string_view name : names) (*all)[name] = splits;
    };
    const GgufSplits gpt2 = {{kGpt2}};
    add(gpt2, {"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de",
               "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion",
               "granite-docling", "jina-v1-en", "jina-v2-code", "roberta-bpe", "exaone4"});
    add({{kDigit, kGpt2}}, {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone",
                            "minerva-7b", "mellum2"});
    add({{kPunctuationOfDefault, kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}, {"default"});
    add({{kPunctuation, kGpt2, "[0-9][0-9][0-9]"}}, {"falcon"});
    add({{kLlama3}, true, true}, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                  "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"});
    add({{kLlama3}}, {"dbrx", "smaug-bpe", "chatglm-bpe"});
    add({{kLlama3}, true}, {"glm4", "glm5"});
    add({{kThreeDigits, kManyDigits}, true}, {"minicpm5"});
    add({{kJais2}}, {"jais-2"});
    add({{kQwen2}}, {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan",
                     "solar-open", "grok-2", "megrez"});
    add({{kQwen35}}, {"qwen35"});
    add({{kNoContractions}}, {"ufakzeka"});
    add({{kSeedCoder}}, {"seed-coder"});
    add({{kBailing}}, {"bailingmoe", "bailingmoe2", "llada-moe"});
    add({{kExaoneMoe}}, {"exaone-moe"});
    add({{"[^\\n]+|[\\n]+", kQwen2}}, {"laguna"});
    add({{kGpt4o}}, {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"});
    add({{kGpt4o}, true}, {"granite-embed-multi-97m"});
    add({{R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o}}, {"tiny_aya", "cohere2moe"});
    add({{kTekken}, true, true}, {"tekken"});
    add({{kYoutuScripts, kYoutu}, true}, {"youtu"});
    add({{kKimi}}, {"kimi-k2"});
    add({{kLineEnd, kDeepseekLetters, kDeepseekMarks, R"(\s+$)", kHanAndHangul, R"(\p{N}+)"}},
        {"deepseek-llm"});
    add({{kLineEnd, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kHanAndHangul, kDigit}}, {"deepseek-coder"});
    add({{kThreeDigits, kHanAndKana, kDeepseek3}},
        {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"});
    add({{kRightThrees, kAsianScripts, kDeepseek3}}, {"afmoe"});
    add({{kThreeDigits, kHanAndKana, kSpark, kDigit}}, {"spark2_5"});
    add({{kBloom}}, {"poro-chat", "bloom", "gpt3-finnish"});
    add({{kBloom, kDigit}}, {"viking"});
    return all;
  }();
  return *kAll;
}

}  // namespace

const GgufSplits* find_splits(std::string_view pre) {
  const auto found = all_splits().find(pre);
  return found == all_splits().end() ? nullptr : &found->second;
}

std::string known_splits() {
  std::vector<std::string_view> names;
  for (const auto& [name, splits] : all_splits()) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace wideep::tokenizer
