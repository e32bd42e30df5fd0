// SPDX-License-Identifier: Apache-2.0
//
// The interface through which the endpoints use an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "run/event.h"
#include "schedule/request.h"

namespace wideep::server {

// Thread safety: the serving thread, on which the callbacks are called too.
class Backend {
 public:
  using OnToken = std::function<void(const run::Token&)>;
  using OnExperts = std::function<void(const run::RoutedExperts&)>;
  using OnProgress = std::function<void(const run::PromptProgress&)>;

  virtual ~Backend() = default;
  // Calls on_token with every token, until one has a finish reason or cancel() is called. After
  // that, if request.returns_experts, it calls on_experts once. Before the first token, if
  // request.reports_progress, it calls on_progress: when the prompt begins, and when more of it is
  // computed. The backend chooses request.index. Returns the id for cancel().
  virtual int64_t submit(engine::Request request, OnToken on_token, OnExperts on_experts,
                         OnProgress on_progress) = 0;
  virtual void cancel(int64_t id) = 0;
  // No more tokens are wanted, but the experts are, of at least the tokens that have come; or of
  // fewer, if a rank has died. on_token may be called for tokens that were on their way.
  virtual void cut(int64_t id) = 0;
  // Since when the ranks have had requests without a break, in seconds of the steady clock; nullopt:
  // they have none. One that waits for other servers' pages, or for more requests, is none of theirs.
  virtual std::optional<double> computes_since() const = 0;
};

}  // namespace wideep::server
