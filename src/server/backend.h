// SPDX-License-Identifier: Apache-2.0
//
// The interface through which the endpoints use an engine.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/request.h"
#include "run/event.h"

namespace wideep::server {

// Thread safety: the serving thread, on which on_token is called too.
class Backend {
 public:
  using OnToken = std::function<void(const run::Token&)>;

  virtual ~Backend() = default;
  // Calls on_token with every token, until one has a finish reason or cancel() is called. The
  // backend chooses request.index. Returns the id for cancel().
  virtual int64_t submit(engine::Request request, OnToken on_token) = 0;
  virtual void cancel(int64_t id) = 0;
};

}  // namespace wideep::server
