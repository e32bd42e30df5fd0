// SPDX-License-Identifier: Apache-2.0
//
// Sends spans to a collector by OTLP/HTTP, from a thread of its own with an event loop of its own.
//
//   add() ──→ queue, bounded ──→ thread: batches ──→ POST …/v1/traces
//              └ full: dropped, and counted           └ 429, 502, 503, 504, no answer: again, with
//                                                       waits that double; else dropped
//
// So a collector that is slow, hangs or is not there costs spans, never time: add() takes a lock
// that is held only while spans are moved.
//
// Thread safety: add() and num_dropped() from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "traces/span.h"
#include "traces/trace_settings.h"
#include "wideep/status.h"

namespace wideep::traces {

struct ExporterLimits {
  size_t max_queue = 4096;   // spans that wait
  size_t max_batch = 512;    // spans of a request to the collector, about
  int batch_ms = 1000;       // after which a smaller batch is sent
  int flush_ms = 2000;       // at the end, for all that is left
  int first_wait_ms = 1000;  // before a batch is sent again; doubled each time
  int max_attempts = 5;
};

class SpanExporter {
 public:
  // Starts the thread: the process must not fork afterwards. Errors (failed): the system refuses an
  // event loop.
  static Result<std::unique_ptr<SpanExporter>> start(const TraceSettings& settings,
                                                     const ExporterLimits& limits = {});
  // Sends what is left, for limits.flush_ms at most; what is not sent by then is dropped, which a
  // line says.
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // The spans of one request: all of them, or none if they find no room.
  void add(std::vector<Span> spans);
  // Spans that no collector has taken, since the start.
  uint64_t num_dropped() const { return dropped_; }

 private:
  class Sender;  // what the thread has
  SpanExporter(const TraceSettings& settings, const ExporterLimits& limits);
  std::vector<Span> take_batch();
  bool has_batch();

  const ExporterLimits limits_;
  std::atomic<uint64_t> dropped_ = 0;
  std::mutex mutex_;
  std::deque<std::vector<Span>> queue_;  // [requests]; guarded by mutex_
  size_t num_queued_ = 0;                // spans of all of them; guarded by mutex_
  std::unique_ptr<Sender> sender_;
  std::thread thread_;
};

}  // namespace wideep::traces
