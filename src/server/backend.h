// SPDX-License-Identifier: Apache-2.0
//
// What the endpoints need of an engine.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/request.h"
#include "run/event.h"

namespace wideep::server {

// Thread safety: the serving thread, where on_token is called too.
class Backend {
 public:
  using OnToken = std::function<void(const run::Token&)>;

  virtual ~Backend() = default;
  // Its tokens come until one has a finish reason, or cancel(). request.index is the backend's to
  // choose. Returns what cancel() takes.
  virtual int64_t submit(engine::Request request, OnToken on_token) = 0;
  virtual void cancel(int64_t id) = 0;
};

}  // namespace wideep::server
