// SPDX-License-Identifier: Apache-2.0
//
// /proc/[process]/stat. Its fields are counted behind the name of the command, which may have
// spaces and parentheses.
#include "store/process_mark.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace wideep::store {
namespace {

struct Stat {
  char state = '?';
  int64_t threads = 0;
  uint64_t start = 0;
};

std::optional<Stat> stat_of(int32_t process) {
  std::ifstream file(fmt::format("/proc/{}/stat", process));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  Stat stat;
  std::string skipped;
  fields >> stat.state;  // field 3
  for (int field = 4; field < 20; ++field) fields >> skipped;
  fields >> stat.threads >> skipped >> stat.start;  // 20, 22
  return fields ? std::optional(stat) : std::nullopt;
}

}  // namespace

ProcessMark mark_of_this_process() {
  ProcessMark mark{.process = ::getpid()};
  if (const auto stat = stat_of(mark.process)) mark.start = stat->start;
  return mark;
}

bool has_ended(const ProcessMark& mark) {
  if (::kill(mark.process, 0) != 0 && errno == ESRCH) return true;
  const auto stat = stat_of(mark.process);
  if (!stat) return false;
  if (mark.start != 0 && stat->start != mark.start) return true;
  // Its other threads may still run while the first is a zombie.
  return (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1;
}

}  // namespace wideep::store
