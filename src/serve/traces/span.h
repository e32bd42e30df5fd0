// SPDX-License-Identifier: Apache-2.0
//
// Spans, and the body of a request of OTLP/HTTP that carries them as JSON
// (https://opentelemetry.io/docs/specs/otlp/): ids in hexadecimal digits, enumerations and doubles
// as numbers, 64-bit integers as decimal strings.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace wideep::traces {

using Value = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
using Attributes = std::vector<std::pair<std::string, Value>>;

struct Span {
  enum Kind { kInternal = 1, kServer = 2, kClient = 3 };

  std::string trace_id, span_id;
  std::string parent_id;  // "": it begins the trace
  std::string state;      // tracestate
  std::string name;
  Kind kind = kInternal;
  int64_t begin_ns = 0, end_ns = 0;  // since 1970
  Attributes attributes;
  std::string error;  // why it has failed; "": it has not
};

// Whose spans they are.
struct Resource {
  Attributes attributes;  // with service.name
  std::string version;    // of this program
};

std::string export_request(const Resource& resource, std::span<const Span> spans);

}  // namespace wideep::traces
