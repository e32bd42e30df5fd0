// SPDX-License-Identifier: Apache-2.0
#include "group/run_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace wideep::transport {
namespace {

// The first number of the file is the time on a processor, in ns.
std::optional<uint64_t> ran_ns(const std::string& schedstat) {
  const int fd = ::open(schedstat.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  char text[64] = {};
  const ssize_t bytes = ::read(fd, text, sizeof(text) - 1);
  ::close(fd);
  if (bytes <= 0) return std::nullopt;
  return std::strtoull(text, nullptr, 10);
}

}  // namespace

int RunWatch::look(pid_t process) {
  const std::optional<uint64_t> main = ran_ns(fmt::format("/proc/{}/schedstat", process));
  if (!main) return silent_ = 0;
  return note(*main, [&]() -> std::optional<uint64_t> {
    std::error_code error;
    const std::filesystem::directory_iterator tasks(fmt::format("/proc/{}/task", process), error);
    if (error) return std::nullopt;
    uint64_t all = 0;
    for (const auto& task : tasks) all += ran_ns(task.path() / "schedstat").value_or(0);
    return all;
  });
}

int RunWatch::note(uint64_t main_ns, const std::function<std::optional<uint64_t>()>& all_ns) {
  const bool is_first = silent_ < 0;
  if (is_first || main_ns != main_ns_) {
    main_ns_ = main_ns;
    return silent_ = 0;
  }
  // The main thread may wait for others of its own.
  const std::optional<uint64_t> all = all_ns();
  if (!all) return silent_ = 0;
  const bool has_run = *all != all_ns_;
  all_ns_ = *all;
  return silent_ = has_run ? 0 : silent_ + 1;
}

}  // namespace wideep::transport
