// SPDX-License-Identifier: Apache-2.0
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
constexpr std::string_view kExaoneMoe = WIDEEP_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|)"
    R"(\s*[\r\n]|\s+(?!\S)|\s+)";
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
    "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-"
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
// The letters with case, of all scripts that have it.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ)"
    R"(Ἐ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤ)"
    R"(Ⳬ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
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
               "granite-docling", "jina-v1-en", "jina-v2-code", "roberta-bpe"});
    add({{kDigit, kGpt2}}, {"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone",
                            "minerva-7b", "mellum2", "megrez"});
    add({{kPunctuationOfDefault, kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}}, {"default"});
    add({{kPunctuation, kGpt2, "[0-9][0-9][0-9]"}}, {"falcon"});
    add({{kLlama3}, true, true}, {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1",
                                  "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"});
    add({{kLlama3}}, {"dbrx", "smaug-bpe", "chatglm-bpe"});
    add({{kLlama3}, true}, {"glm4", "glm5"});
    add({{kThreeDigits, kManyDigits}, true}, {"minicpm5"});
    add({{kJais2}}, {"jais-2"});
    add({{kQwen2}}, {"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan",
                     "solar-open", "grok-2", "exaone4"});
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
