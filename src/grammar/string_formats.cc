// SPDX-License-Identifier: Apache-2.0
#include "grammar/string_formats.h"

#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/regex.h"

namespace wideep::grammar {
namespace {

// RFC 3339. Without leap days and leap seconds, which depend on the year.
constexpr std::string_view kDate =
    "[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-"
    "9]"
    "|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,6})?(?:Z|[+-](?:0[0-9]|1[0-2]):[0-5]["
    "0-9])";
constexpr std::string_view kUuid = "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])";
constexpr std::string_view kLabel = "[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?";

std::string pattern_of(std::string_view name) {
  const std::string byte(kByte), label(kLabel);
  if (name == "date") return std::string(kDate);
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return std::string(kDate) + "T" + std::string(kTime);
  if (name == "uuid") return std::string(kUuid);
  if (name == "ipv4") return byte + "\\." + byte + "\\." + byte + "\\." + byte;
  const std::string host = label + "(?:\\." + label + "){1,3}";
  if (name == "hostname") return host;
  if (name == "email") return "[A-Za-z0-9_+-]{1,16}(?:\\.[A-Za-z0-9_+-]{1,16}){0,2}@" + host;
  return "";
}

}  // namespace

std::optional<Expression> string_format(std::string_view name) {
  const std::string pattern = pattern_of(name);
  if (pattern.empty()) return {};
  Result<Expression> inside = parse_regex(pattern);
  WIDEEP_CHECK(inside.ok());
  return std::move(*inside);
}

}  // namespace wideep::grammar
