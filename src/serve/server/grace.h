// SPDX-License-Identifier: Apache-2.0
//
// How long running requests may go on after the signal that ends a server.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>

namespace wideep::server {

inline constexpr int kGraceSeconds = 30;

// seconds: after SIGTERM. Whoever presses Ctrl-C waits for less.
inline std::chrono::milliseconds grace_after(int signal, int seconds) {
  return std::chrono::seconds(signal == SIGTERM ? seconds : std::min(seconds, 5));
}

}  // namespace wideep::server
