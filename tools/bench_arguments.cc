// SPDX-License-Identifier: Apache-2.0
#include "bench_arguments.h"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace wideep::tools {
namespace {

// With a value, which may also follow '=' or, for one letter, stand right behind it.
constexpr std::string_view kWithValue[] = {"--model", "-m",          "--model-path", "--workspace",
                                           "-w",      "--log-level", "--revision"};
constexpr std::string_view kFlags[] = {"--telemetry", "--no-telemetry"};

// How many arguments the option at the front of the rest takes, itself included; 0: it is none of
// the group's.
size_t length_of(std::string_view option) {
  const std::string_view name = option.substr(0, option.find('='));
  for (const std::string_view flag : kFlags) {
    if (option == flag) return 1;
  }
  for (const std::string_view each : kWithValue) {
    const bool is_short = each.size() == 2;
    if (option == each) return 2;
    if (is_short ? option.starts_with(each) : name == each) return 1;
  }
  return 0;
}

}  // namespace

std::vector<std::string> move_group_options(std::vector<std::string> arguments) {
  if (arguments.empty() || arguments[0] != "bench") return arguments;
  size_t at = 1;
  while (at < arguments.size() && arguments[at].starts_with("-")) {
    const size_t length = length_of(arguments[at]);
    if (length == 0) return arguments;
    at += length;
  }
  if (at >= arguments.size()) return arguments;
  const auto begin = arguments.begin() + 1;
  const auto sub_command = arguments.begin() + static_cast<std::ptrdiff_t>(at);
  std::rotate(begin, sub_command, sub_command + 1);
  return arguments;
}

}  // namespace wideep::tools
