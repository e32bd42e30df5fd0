// SPDX-License-Identifier: Apache-2.0
#include "piped_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/try.h"

namespace wideep::tools {

Result<std::optional<std::string>> PipedInput::line() {
  for (;;) {
    if (const size_t end = bytes_.find('\n', searched_); end != bytes_.npos) {
      std::string line = bytes_.substr(0, end);
      bytes_.erase(0, end + 1);
      searched_ = 0;
      return std::optional(std::move(line));
    }
    searched_ = bytes_.size();
    WIDEEP_TRY_ASSIGN(const bool more, read_more());
    if (more) continue;
    if (bytes_.empty()) return std::optional<std::string>();
    searched_ = 0;
    return std::optional(std::exchange(bytes_, {}));
  }
}

Result<std::string> PipedInput::all() {
  for (;;) {
    WIDEEP_TRY_ASSIGN(const bool more, read_more());
    if (!more) return std::exchange(bytes_, {});
  }
}

Result<bool> PipedInput::read_more() {
  if (bytes_.size() > kMaxBytes) {
    return invalid_input(
        fmt::format("standard input: expected a message of at most {} MiB", kMaxBytes >> 20));
  }
  for (;;) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    ::poll(waits, 2, -1);
    const int signal = signals_.take();
    if (signal == SIGINT || ChatSignals::ends_chat(signal))
      return interrupted("stopped by a signal");
    if (waits[0].revents == 0) continue;
    char part[1 << 16];
    const ssize_t length = ::read(STDIN_FILENO, part, sizeof(part));
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) {
      return failed(fmt::format("standard input: cannot be read: {}", std::strerror(errno)));
    }
    bytes_.append(part, static_cast<size_t>(length));
    return length > 0;
  }
}

}  // namespace wideep::tools
