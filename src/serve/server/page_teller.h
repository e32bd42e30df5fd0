// SPDX-License-Identifier: Apache-2.0
//
// From what ranks say of their pages to KV events: who of them is which reader's rank, when a rank
// knows nothing any more, and the publisher.
//
// Thread safety: made before ranks are forked; then begin(), take() and died() by the thread that
// pulls their events, start() and stop() by the one that starts serving.
#pragma once

#include <optional>
#include <vector>

#include "kv_events/event_log.h"
#include "kv_events/events_config.h"
#include "kv_events/zmq_publisher.h"
#include "run/event.h"
#include "run/run_plan.h"

namespace wideep::server {

class PageTeller {
 public:
  PageTeller(kv_events::EventsConfig config, const run::RunPlan& plan);

  kv_events::EventLog& log() { return log_; }
  // In the process that serves: earlier ones may have told what this one does not know.
  void begin();
  // Starts the publisher, if there is one. library: null without one. After begin().
  void start(const kv_events::ZmqLibrary* library);
  void stop() { publisher_.reset(); }

  void take(const run::PagesChanged& pages);
  // Whoever shared sequences with the rank goes on with other pages; all, if the others cannot go on
  // without it: they begin anew.
  void died(int rank);

 private:
  int owner_of(int rank) const { return owners_[static_cast<size_t>(rank)]; }

  const kv_events::EventsConfig config_;
  const bool is_elastic_;
  std::vector<int> owners_;  // [world_size] which of those with requests of their own it belongs to
  kv_events::EventLog log_;
  std::optional<kv_events::ZmqPublisher> publisher_;
};

}  // namespace wideep::server
