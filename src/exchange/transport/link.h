// SPDX-License-Identifier: Apache-2.0
//
// Sends and receives whole messages between ranks that share no memory. Back ends: MpiLink between
// processes; MemorySwitch between threads, for tests.
//
// Messages from one rank to another arrive in the order in which they were sent.
//
// Thread safety: one thread per link.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
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

  // Queues the message for rank `to` and returns at once.
  virtual void send(int to, Bytes message) = 0;
  // The same for a message that its receiver has no use for before the next one: a link may hold it
  // until then, or until the next receive() or has_sent_all(), and so send both at once.
  virtual void send_with_next(int to, Bytes message) { send(to, std::move(message)); }
  // The next message that has arrived, from any rank; empty if there is none. Never blocks. Also
  // makes progress on queued sends: call it often.
  virtual std::optional<Received> receive() = 0;
  // After receive() has found nothing: waits until something may have arrived, for `at_most`, or
  // for less where the link cannot tell.
  virtual void wait(std::chrono::nanoseconds at_most) {
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(at_most, kPollPause));
  }
  // Whether every queued message has been handed to the network, so that its buffer is free.
  virtual bool has_sent_all() = 0;
  // Ok while the link works; else its first error.
  virtual Status failure() const { return {}; }
  // With failure(): a rank whose machine does not answer any more though its process may run, as
  // where the network between the two is cut. kNone: it has failed otherwise, or not at all.
  static constexpr int kNone = -1;
  virtual int cut_from() const { return kNone; }

 protected:
  static constexpr std::chrono::microseconds kPollPause{50};
};

}  // namespace wideep::transport
