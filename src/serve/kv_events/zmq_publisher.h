// SPDX-License-Identifier: Apache-2.0
//
// Publishes the batches of an EventLog with ZeroMQ, as vLLM does, on a thread of its own:
//
//   PUB     each batch, once: [topic, sequence number, payload]
//   ROUTER  on replay_endpoint: asked with [sequence number], the batches that are kept from that
//           one on, each as ["", number, payload], then ["", −1, ""]
//
// A publisher that falls behind never delays the ranks. It says what all pages are anew
// (EventLog::restate), and readers see a gap in the numbers before. An endpoint that cannot be had
// is tried again every second: the process whose place this one takes may still have it.
//
// Thread safety: the thread that makes it destroys it.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kv_events/event_log.h"
#include "kv_events/events_config.h"
#include "kv_events/zmq_library.h"

namespace wideep::kv_events {

class ZmqPublisher {
 public:
  // Starts the thread: the process must not fork afterwards. log: begun; outlives it.
  ZmqPublisher(const ZmqLibrary& library, EventLog& log, EventsConfig config);
  ~ZmqPublisher();
  ZmqPublisher(const ZmqPublisher&) = delete;
  ZmqPublisher& operator=(const ZmqPublisher&) = delete;

 private:
  // A socket, once it has its endpoint.
  struct Place {
    std::string endpoint;
    bool connects = false;
    std::unique_ptr<ZmqSocket> socket = nullptr;
    bool has_complained = false;
  };
  void run();
  void open(Place* place, int type);
  void publish_next();
  void publish(const std::vector<SharedBatch>& batches);
  void answer_replays();
  void replay(const std::string& peer, const std::string& first);

  const ZmqLibrary& library_;
  EventLog& log_;
  const EventsConfig config_;
  std::atomic<bool> ends_ = false;
  // ---- of the thread ----
  Place events_, replays_;
  uint64_t published_ = 0;  // number of the last batch
  bool has_said_behind_ = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace wideep::kv_events
