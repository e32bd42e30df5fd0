// SPDX-License-Identifier: Apache-2.0
//
// What the endpoints need of an engine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"

namespace wideep::server {

struct BackendToken {
  engine::Sampled sampled;
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  std::vector<engine::Sampled> likely = {};  // as SamplingParams asked for, the likeliest first
  int cached_tokens = 0;                     // of the prompt, that were not computed again
};

// Thread safety: the serving thread, where on_token is called too.
class Backend {
 public:
  using OnToken = std::function<void(const BackendToken&)>;

  virtual ~Backend() = default;
  // Its tokens come until one has a finish reason, or cancel(). request.index is the backend's to
  // choose. Returns what cancel() takes.
  virtual int64_t submit(engine::Request request, OnToken on_token) = 0;
  virtual void cancel(int64_t id) = 0;
};

}  // namespace wideep::server
