// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "wideep/status.h"

namespace wideep::transport {

// Sends messages from a rank to the process that shows results (the parent, or rank 0). Messages
// arrive whole and in order.
//
// Thread safety: any thread.
class Messenger {
 public:
  virtual ~Messenger() = default;

  // Queues the message and returns at once. Errors (failed): the receiver has ended.
  virtual Status send(std::string_view message) const = 0;
  // As send(), if another send() follows soon: the message may be held back until then, so that the
  // sending thread is woken once for both.
  virtual Status send_with_next(std::string_view message) const { return send(message); }
};

}  // namespace wideep::transport
