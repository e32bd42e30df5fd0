// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <string>

namespace wideep::log {
namespace {

std::string& prefix() {
  static std::string text;
  return text;
}

}  // namespace

void set_prefix(std::string_view text) { prefix() = text; }

void write_line(std::string_view level, std::string_view text) {
  const std::string line = fmt::format("{}{}{}\n", prefix(), level, text);
  // One write call: the kernel keeps it whole. A failed write to stderr has nowhere to go.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace wideep::log
