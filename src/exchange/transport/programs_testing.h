// SPDX-License-Identifier: Apache-2.0
//
// For tests that start a server of another project: whether it is installed, and where it listens.
// Inline, as tests of several rooms do.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "transport/tcp.h"

namespace wideep::transport {

// Whether a folder of PATH has it.
inline bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((folder + "/" + name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

// Of 127.0.0.1, at present.
inline int free_port() {
  const int socket = listen_on(resolve("127.0.0.1", 0).value()).value();
  const int port = local_address(socket).port;
  ::close(socket);
  return port;
}

}  // namespace wideep::transport
