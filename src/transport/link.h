// SPDX-License-Identifier: Apache-2.0
//
// Whole messages between ranks, where they share no memory. Back ends: MpiLink between processes,
// MemorySwitch between threads, for tests.
//
// Messages of one rank to another arrive in the order in which they were sent.
//
// Thread safety: one thread per link.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "wideep/status.h"

namespace wideep::transport {

using Bytes = std::vector<std::byte>;

class Link {
 public:
  struct Received {
    int from = 0;
    Bytes message;
  };

  virtual ~Link() = default;

  // Takes the message; does not wait for it to leave.
  virtual void send(int to, Bytes message) = 0;
  // The next message that has come, of anybody; nothing: there is none. Never waits. What is to
  // leave is driven along here too: call it often.
  virtual std::optional<Received> receive() = 0;
  // Whether all that was sent has left.
  virtual bool has_sent_all() = 0;
  // Ok while the link works.
  virtual Status failure() const { return {}; }
};

}  // namespace wideep::transport
