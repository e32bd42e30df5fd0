// SPDX-License-Identifier: Apache-2.0
#include "prompts_file.h"

#include <fmt/format.h>

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

}  // namespace wideep::tools
