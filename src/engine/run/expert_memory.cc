// SPDX-License-Identifier: Apache-2.0
#include "run/expert_memory.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "base/byte_size.h"

namespace wideep::run {

Result<ExpertMemory> parse_expert_memory(std::string_view text) {
  const auto wrong = [&] {
    return invalid_input(
        fmt::format("expected bytes as 12G, or a share of 0% to 100%, found '{}'", text));
  };
  if (!text.ends_with('%')) {
    const Result<uint64_t> bytes = base::parse_byte_size(text);
    return bytes.ok() ? Result<ExpertMemory>(ExpertMemory{.bytes = *bytes, .share = {}}) : wrong();
  }
  const std::string number(text.substr(0, text.size() - 1));
  char* end = nullptr;
  const double percent = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || !(percent >= 0.0 && percent <= 100.0)) return wrong();
  return ExpertMemory{.bytes = 0, .share = percent / 100.0};
}

}  // namespace wideep::run
