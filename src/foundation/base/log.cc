// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <unistd.h>

#include <cstdio>
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
  // Where stdout and stderr go to the same file or pipe, their lines stay whole and in order. (By
  // lines of its own, stdout would end a command whose reader stops after the first.)
  std::fflush(stdout);
  // One write call, so that the line stays whole. The result is ignored: an error of stderr cannot
  // be reported anywhere.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace wideep::log
