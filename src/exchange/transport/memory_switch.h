// SPDX-License-Identifier: Apache-2.0
//
// Links between ranks that are threads. With it, tests and the thread sanitizer can run several
// nodes in one process, without a network.
//
// Thread safety: one thread per link; any thread may call cut().
#pragma once

#include <memory>
#include <vector>

#include "transport/link.h"

namespace wideep::transport {

class MemorySwitch {
 public:
  explicit MemorySwitch(int num_ranks);
  ~MemorySwitch();

  Link& link(int rank);
  // Simulates a network failure: from now on messages to and from the rank are dropped.
  void cut(int rank);

 private:
  class Port;
  std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace wideep::transport
