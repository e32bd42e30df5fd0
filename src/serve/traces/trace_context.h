// SPDX-License-Identifier: Apache-2.0
//
// W3C Trace Context: which trace a request is part of, as the headers traceparent and tracestate
// say it (https://www.w3.org/TR/trace-context/).
//
//   traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
//                version, trace id, id of the caller's span, flags (bit 0: it is recorded)
//
// Thread safety: all.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wideep::traces {

struct TraceContext {
  std::string trace_id;  // 32 hexadecimal digits in lower case, not all 0
  std::string span_id;   // 16 of them
  bool is_sampled = false;

  bool operator==(const TraceContext&) const = default;
};

// nullopt: it is none, or invalid in the specification's sense. Of a higher version what version 00
// has.
std::optional<TraceContext> parse_traceparent(std::string_view header);
std::string traceparent_of(const TraceContext& context);
// tracestate is passed on as it came, if it may be: at most 512 printable bytes in 32 members.
bool is_tracestate(std::string_view header);

// A span of this process for a request, and what it is part of.
struct RequestTrace {
  TraceContext own;
  std::string parent_id;  // of the caller's span; "": this one begins the trace
  std::string state;      // tracestate
};

}  // namespace wideep::traces
