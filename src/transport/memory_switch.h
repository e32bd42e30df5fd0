// SPDX-License-Identifier: Apache-2.0
//
// Links between ranks that are threads, so that tests and the thread sanitizer see ranks of several
// nodes without a network.
//
// Thread safety: each link belongs to one thread; cut() may be called by any.
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
  // From now on nothing reaches the rank, and nothing of it reaches others: its network is silent.
  void cut(int rank);

 private:
  class Port;
  std::vector<std::unique_ptr<Port>> ports_;
};

}  // namespace wideep::transport
