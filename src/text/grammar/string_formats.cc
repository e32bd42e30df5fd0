// SPDX-License-Identifier: Apache-2.0
#include "grammar/string_formats.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/check.h"
#include "grammar/regex.h"

namespace wideep::grammar {
namespace {

// RFC 3339, from the year 1 on, without leap seconds, which few programs know.
constexpr std::string_view kYear = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])";
constexpr std::string_view kLeapYear =
    "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)";
constexpr std::string_view kDayOfAnyYear =
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kTime =
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
// RFC 4122.
constexpr std::string_view kUuid = "[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}";
constexpr std::string_view kByte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])";

// RFC 1123: labels of at most 63 characters, 253 in all. So that these need not be counted beside
// each other: 3 labels of any length, 7 of at most 31 or 15 of at most 15.
std::string hostname() {
  const auto labels = [](int max_characters, int max_labels) {
    const std::string label =
        fmt::format("[A-Za-z0-9](?:[A-Za-z0-9-]{{0,{}}}[A-Za-z0-9])?", max_characters - 2);
    return fmt::format("{}(?:\\.{}){{0,{}}}", label, label, max_labels - 1);
  };
  return fmt::format("(?:{}|{}|{})", labels(63, 3), labels(31, 7), labels(15, 15));
}

// RFC 5321: a Dot-string, of at most 64 characters, at a name of a host.
constexpr std::string_view kDotString =
    "(?=.{1,64}$)[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*";

Expression parsed(std::string_view pattern) {
  Result<Expression> inside = parse_regex(pattern);
  WIDEEP_CHECK(inside.ok());
  return std::move(*inside);
}

std::string pattern_of(std::string_view name) {
  const std::string byte(kByte);
  const std::string date = fmt::format("(?:{}-{}|{}-02-29)", kYear, kDayOfAnyYear, kLeapYear);
  if (name == "date") return date;
  if (name == "time") return std::string(kTime);
  if (name == "date-time") return date + "T" + std::string(kTime);
  if (name == "uuid") return std::string(kUuid);
  if (name == "ipv4") return byte + "\\." + byte + "\\." + byte + "\\." + byte;
  if (name == "hostname") return hostname();
  return "";
}

}  // namespace

std::optional<Expression> string_format(std::string_view name) {
  if (name == "email") {
    return sequence({parsed(kDotString), text("@"), parsed(hostname())});
  }
  const std::string pattern = pattern_of(name);
  if (pattern.empty()) return {};
  return parsed(pattern);
}

}  // namespace wideep::grammar
