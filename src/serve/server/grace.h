// SPDX-License-Identifier: Apache-2.0
//
// How long running requests may go on after the signal that ends a server.
#pragma once

#include <chrono>
#include <csignal>

namespace wideep::server {

inline std::chrono::milliseconds grace_after(int signal) {
  return std::chrono::milliseconds(signal == SIGTERM ? 30'000 : 5'000);
}

}  // namespace wideep::server
