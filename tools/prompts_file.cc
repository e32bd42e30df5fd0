// SPDX-License-Identifier: Apache-2.0
#include "prompts_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/try.h"
#include "formats/json.h"
#include "formats/lines.h"

namespace wideep::tools {
namespace {

// A key such as "max_tokens" has no effect here, so it is refused, not ignored.
void refuse_other_keys(const formats::JsonObject& line) {
  for (const std::string& key : line.keys()) {
    if (key == "prompt" || key == "id" || key == "domain") continue;
    line.complain(key, "not known; expected prompt, and as labels id or domain");
  }
}

// A label, or the text itself.
bool is_known_of_conversation(const std::string& key) {
  return key == "prompt" || key == "turns" || key == "id" || key == "domain" ||
         key == "question_id" || key == "category" || key == "reference";
}

Turns turns_of(const formats::JsonObject& line) {
  for (const std::string& key : line.keys()) {
    if (is_known_of_conversation(key)) continue;
    line.complain(key, "not known; expected prompt or turns, and labels");
  }
  if (!line.has("turns")) return {line.string("prompt")};
  if (line.has("prompt")) line.complain("prompt", "has no place beside turns");
  const nlohmann::json& list = line.raw().at("turns");
  const auto is_text = [](const nlohmann::json& turn) { return turn.is_string(); };
  if (!list.is_array() || list.empty() || !std::ranges::all_of(list, is_text)) {
    line.complain("turns", "expected a list of texts, the first of which is a prompt");
    return {};
  }
  return list.get<Turns>();
}

}  // namespace

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 14];
  while (const size_t bytes = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, bytes);
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(path));
  return parse_prompts(std::move(content), path);
}

Result<std::vector<std::string>> parse_prompts(std::string content, const std::string& path) {
  std::vector<std::string> prompts;
  formats::NonBlankLines lines(std::move(content));
  while (const auto line = lines.next()) {
    WIDEEP_TRY_ASSIGN(
        const formats::JsonDocument document,
        formats::JsonDocument::parse(line->text, fmt::format("{} line {}", path, line->number)));
    prompts.push_back(document.root().string("prompt"));
    refuse_other_keys(document.root());
    WIDEEP_TRY(document.status());
  }
  if (prompts.empty()) return invalid_input(fmt::format("{}: holds no prompt", path));
  return prompts;
}

Result<std::vector<Turns>> read_conversations(const std::string& path) {
  WIDEEP_TRY_ASSIGN(std::string content, formats::read_file(path));
  std::vector<Turns> conversations;
  formats::NonBlankLines lines(std::move(content));
  while (const auto line = lines.next()) {
    WIDEEP_TRY_ASSIGN(
        const formats::JsonDocument document,
        formats::JsonDocument::parse(line->text, fmt::format("{} line {}", path, line->number)));
    conversations.push_back(turns_of(document.root()));
    WIDEEP_TRY(document.status());
  }
  if (conversations.empty()) return invalid_input(fmt::format("{}: holds no conversation", path));
  return conversations;
}

}  // namespace wideep::tools
