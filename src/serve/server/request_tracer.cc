// SPDX-License-Identifier: Apache-2.0
#include "server/request_tracer.h"

#include <chrono>

#include "base/cpu_time.h"
#include "base/try.h"
#include "server/prometheus_text.h"
#include "server/request_spans.h"

namespace wideep::server {

Status RequestTracer::start() {
  WIDEEP_TRY_ASSIGN(exporter_, traces::SpanExporter::start(settings_));
  return {};
}

traces::RequestTrace RequestTracer::begin(const RequestHead& head) const {
  return settings_.sampler.begin(head.field("traceparent"), head.field("tracestate"));
}

void RequestTracer::ended(const RequestRecord& record) {
  if (exporter_ == nullptr || !record.trace || !record.trace->own.is_sampled) return;
  const int64_t unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  exporter_->add(spans_of(record, unix_ns - base::wall_ns()));
}

std::string RequestTracer::metrics() const {
  return metric("wideep_trace_spans_dropped_total", "counter",
                "Spans of traces that no collector has taken.",
                exporter_ == nullptr ? 0 : exporter_->num_dropped());
}

}  // namespace wideep::server
