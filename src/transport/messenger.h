// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "wideep/status.h"

namespace wideep::transport {

// A rank's way to tell whoever shows results something: whole messages, in order.
//
// Thread safety: any thread.
class Messenger {
 public:
  virtual ~Messenger() = default;

  // Queues the message; does not wait. Errors (failed): nobody listens any longer.
  virtual Status send(std::string_view message) const = 0;
  // Before a send() that follows soon: may wait for that, so that both cost one waking.
  virtual Status send_with_next(std::string_view message) const { return send(message); }
};

}  // namespace wideep::transport
