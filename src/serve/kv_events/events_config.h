// SPDX-License-Identifier: Apache-2.0
//
// How KV events are published: --kv-events-config of `wideep serve`, JSON with vLLM's keys, and
// event_form for readers of older versions.
//
// Thread safety: a plain value; pure functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "kv_events/event.h"
#include "wideep/status.h"

namespace wideep::kv_events {

struct EventsConfig {
  bool has_publisher = true;  // "zmq"; else "null": over HTTP only
  std::string endpoint =
      "tcp://*:5557";               // bound if it has a "*" or "::", or is a file; else reached
  std::string replay_endpoint;      // bound; "": none
  size_t buffer_steps = 10'000;     // batches that are kept for those that come late
  int hwm = 100'000;                // messages that wait for one reader; then it misses some
  size_t max_queue_size = 100'000;  // batches that wait to be published
  std::string topic;
  EventForm form = EventForm::kMap;  // event_form: "map" or "array"

  // Whether another process binds `endpoint`, and this one connects to it.
  bool connects() const;
};

// nullopt: enable_kv_cache_events is false, or not there. Errors (invalid input): no JSON object, an
// unknown key, a value.
Result<std::optional<EventsConfig>> read_events_config(std::string_view json,
                                                       const std::string& name);

}  // namespace wideep::kv_events
