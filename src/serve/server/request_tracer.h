// SPDX-License-Identifier: Apache-2.0
//
// Traces of requests: whether one is recorded, and its spans' way to the collector. For serve and
// for route.
//
// Thread safety: the serving thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "http/http_request_reader.h"
#include "http/request_record.h"
#include "traces/span_exporter.h"
#include "traces/trace_settings.h"

namespace wideep::server {

class RequestTracer {
 public:
  explicit RequestTracer(traces::TraceSettings settings) : settings_(std::move(settings)) {}

  // Starts the thread that sends: this process must not fork afterwards. Before it nothing is sent.
  // Errors (failed): the system refuses an event loop.
  Status start();
  // Of a request with this head.
  traces::RequestTrace begin(const RequestHead& head) const;
  // Sends the spans of a request that is over, if it is traced.
  void ended(const RequestRecord& record);
  // For /metrics.
  std::string metrics() const;

 private:
  const traces::TraceSettings settings_;
  std::unique_ptr<traces::SpanExporter> exporter_;
};

}  // namespace wideep::server
