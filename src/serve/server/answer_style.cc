// SPDX-License-Identifier: Apache-2.0
//
// A style is found once for each template, by what the template writes and which special tokens the
// tokenizer has: all of harmony's mean harmony, unless other formats are named. A special token
// that occurs in a marker counts as one, since decoding would leave it out and the reader would not
// see the mark. The template's words are kept, to know which members of a message it may read.
#include "server/answer_style.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "answer/call_formats.h"
#include "base/try.h"

namespace wideep::server {
namespace {

constexpr std::string_view kHarmonyCalls = "openai", kHarmonyReasoning = "openai_gptoss";

bool has_harmony_tokens(const tokenizer::Tokenizer& tokenizer) {
  const auto names = answer::harmony_tokens();
  return std::all_of(names.begin(), names.end(), [&](std::string_view name) {
    const auto id = tokenizer.token_to_id(name);
    return id && tokenizer.is_special(*id);
  });
}

Status unknown(const char* option, const std::string& name, std::vector<std::string_view> known) {
  std::sort(known.begin(), known.end());
  return invalid_input(
      fmt::format("{}: expected auto, none, {}, found '{}'", option, fmt::join(known, ", "), name));
}

bool is_general(const std::string& name) { return name == "auto" || name == "none"; }

// Special tokens that are a part of a marker, as "｜DSML｜" of "<｜DSML｜invoke".
std::vector<int32_t> tokens_in(const std::vector<std::string_view>& markers,
                               const tokenizer::Tokenizer& tokenizer) {
  std::vector<int32_t> tokens;
  for (int32_t id = 0; id < tokenizer.id_limit(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string_view text = tokenizer.id_to_token(id);
    const bool marks = std::any_of(markers.begin(), markers.end(), [&](std::string_view marker) {
      return !text.empty() && marker.find(text) != marker.npos;
    });
    if (marks) tokens.push_back(id);
  }
  return tokens;
}

// From the least on: OpenAI's, and what templates call the first of them.
constexpr std::string_view kEfforts[] = {"none",   "no_think", "minimal", "low",
                                         "medium", "high",     "xhigh",   "max"};
constexpr std::string_view kLastOff = "no_think";

// Those that are texts in it.
std::vector<std::string> efforts_in(std::string_view text) {
  std::vector<std::string> efforts;
  if (text.find("reasoning_effort") == text.npos) return efforts;
  for (const std::string_view each : kEfforts) {
    const bool is_there = text.find(fmt::format("'{}'", each)) != text.npos ||
                          text.find(fmt::format("\"{}\"", each)) != text.npos;
    if (is_there) efforts.emplace_back(each);
  }
  return efforts;
}

// Whatever may be a name in it, also of what it does not read.
std::set<std::string, std::less<>> words_of(std::string_view text) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::set<std::string, std::less<>> words;
  while (!text.empty()) {
    text.remove_prefix(std::min(text.find_first_of(kLetters), text.size()));
    const size_t end = std::min(text.find_first_not_of(kLetters), text.size());
    if (end > 0) words.emplace(text.substr(0, end));
    text.remove_prefix(end);
  }
  return words;
}

}  // namespace

Status ParserNames::check() const {
  if (!is_general(tool_calls) && tool_calls != kHarmonyCalls &&
      answer::find_call_format(tool_calls) == nullptr) {
    std::vector<std::string_view> known = {kHarmonyCalls};
    for (const answer::CallFormat* each : answer::call_formats()) {
      known.push_back(each->name);
      known.insert(known.end(), each->more_names.begin(), each->more_names.end());
    }
    return unknown("--tool-call-parser", tool_calls, std::move(known));
  }
  if (!is_general(reasoning) && reasoning != kHarmonyReasoning &&
      answer::find_reasoning_format(reasoning) == nullptr) {
    std::vector<std::string_view> known = {kHarmonyReasoning};
    for (const answer::ReasoningFormat& each : answer::reasoning_formats()) {
      known.push_back(each.name);
    }
    return unknown("--reasoning-parser", reasoning, std::move(known));
  }
  return {};
}

std::string AnswerStyle::effort_for(std::string_view asked) const {
  const auto rank = [](std::string_view effort) {
    return std::find(std::begin(kEfforts), std::end(kEfforts), effort) - std::begin(kEfforts);
  };
  const bool is_off = rank(asked) <= rank(kLastOff);
  const auto is_alike = [&](const std::string& each) {
    return (rank(each) <= rank(kLastOff)) == is_off;
  };
  if (is_off) {
    const auto off = std::ranges::find_if(efforts, is_alike);
    if (off != efforts.end()) return *off;
    const bool has_least = !efforts.empty() && efforts.front() == "minimal";
    return has_least ? efforts.front() : "";
  }
  if (!refuses_efforts) return std::string(asked);
  std::string best(asked);
  for (const std::string& each : efforts) {
    if (!is_alike(each)) continue;
    best = each;
    if (rank(each) >= rank(asked)) break;
  }
  return best;
}

bool AnswerStyle::marks(int32_t token) const {
  return std::binary_search(markers.begin(), markers.end(), token);
}

Result<AnswerStyle> answer_style(std::string_view text, const tokenizer::Tokenizer& tokenizer,
                                 const ParserNames& names) {
  AnswerStyle style;
  const bool has_tokens = has_harmony_tokens(tokenizer);
  const bool names_harmony =
      names.tool_calls == kHarmonyCalls || names.reasoning == kHarmonyReasoning;
  if (names_harmony && !has_tokens) {
    return invalid_input(
        fmt::format("{}: expected a model whose tokenizer has the special tokens {}; leave the "
                    "option out",
                    names.tool_calls == kHarmonyCalls ? "--tool-call-parser openai"
                                                      : "--reasoning-parser openai_gptoss",
                    fmt::join(answer::harmony_tokens(), " ")));
  }
  const bool is_other = !is_general(names.tool_calls) || !is_general(names.reasoning);
  answer::AnswerFormat& format = style.format;
  format.is_harmony = names_harmony || (has_tokens && !is_other && names.reasoning != "none");
  if (!format.is_harmony) {
    format.calls = names.tool_calls == "auto" ? answer::call_format_of_template(text)
                                              : answer::find_call_format(names.tool_calls);
    format.reasoning = names.reasoning == "auto" ? answer::reasoning_format_of_template(text)
                                                 : answer::find_reasoning_format(names.reasoning);
  }
  style.calls_tools = format.calls != nullptr || (format.is_harmony && names.tool_calls != "none");
  style.markers = tokens_in(format.markers(), tokenizer);
  for (const int32_t token : style.markers) {
    style.marker_names.emplace_back(tokenizer.id_to_token(token));
  }
  style.reads_thinking = text.find("message.thinking") != text.npos;
  style.names = words_of(text);
  style.efforts = efforts_in(text);
  style.refuses_efforts = style.efforts.size() > 1 && text.find("raise_exception") != text.npos;
  style.knows_developer = text.find("developer") != text.npos;
  return style;
}

}  // namespace wideep::server
