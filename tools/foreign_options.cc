// SPDX-License-Identifier: Apache-2.0
#include "foreign_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "base/log.h"
#include "base/try.h"

namespace wideep::tools {
namespace {

using Takes = ForeignOption::Takes;

std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::string name_of(const ForeignOption& option) { return parts_of(option.names).front(); }

bool is_number(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0';
}

Status check(const ForeignOption& option, const std::string& value) {
  const std::string name = name_of(option);
  if (option.takes == Takes::kNumber && !is_number(value)) {
    return invalid_input(fmt::format("{}: expected a number, found {}", name, value));
  }
  if (option.accepted == nullptr) return {};
  const std::vector<std::string> accepted = parts_of(option.accepted);
  if (accepted.empty()) {
    return invalid_input(
        fmt::format("{}{}{}: {}", name, value.empty() ? "" : " ", value, option.why));
  }
  if (std::find(accepted.begin(), accepted.end(), value) != accepted.end()) return {};
  return invalid_input(fmt::format("{}: expected {} ({}), found {}", name,
                                   fmt::join(accepted, " or "), option.why, value));
}

constexpr const char* kNoUsageData = "wideep sends no usage data anywhere";
constexpr ForeignOption kGroup[] = {
    {"--workspace,-w", Takes::kText, nullptr, "no intermediate files are written"},
    {"--log-level", Takes::kText, "internal_error,error,warning,info,verbose,debug,trace",
     "there is one level of lines, on stderr"},
    {"--revision", Takes::kText, "",
     "nothing is downloaded; download that revision and give its directory (--model-path)"},
    {"--telemetry", Takes::kNothing, nullptr, kNoUsageData},
    {"--no-telemetry", Takes::kNothing, nullptr, kNoUsageData},
};

}  // namespace

std::span<const ForeignOption> trtllm_bench_options() { return kGroup; }

void ForeignOptions::add_to(command_line::Command command, std::span<const ForeignOption> options) {
  for (const ForeignOption& option : options) {
    Given& given = given_.emplace_back();
    given.option = &option;
    if (option.takes == Takes::kNothing) {
      command.add_flag(option.names, given.is_set).hide();
    } else {
      command_line::Option added = command.add_option(option.names, given.values);
      if (option.takes != Takes::kTexts) added.one_value_each();
      added.hide();
    }
  }
}

Status ForeignOptions::take() const {
  for (const Given& given : given_) {
    const ForeignOption& option = *given.option;
    if (given.is_set) WIDEEP_TRY(check(option, ""));
    for (const std::string& value : given.values) WIDEEP_TRY(check(option, value));
  }
  for (const Given& given : given_) {
    if (!given.is_set && given.values.empty()) continue;
    log::info("{}: accepted, no effect: {}", name_of(*given.option), given.option->why);
  }
  return {};
}

}  // namespace wideep::tools
