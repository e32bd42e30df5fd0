// SPDX-License-Identifier: Apache-2.0
//
// Which traces are recorded, by OTEL_TRACES_SAMPLER: the caller's decision where there is one
// (parent-based), else all, none, or a share of them, chosen by the trace's id: so all who see the
// trace choose the same.
//
// Thread safety: a plain value.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "traces/trace_context.h"
#include "wideep/status.h"

namespace wideep::traces {

struct Sampler {
  bool heeds_parent = true;
  double ratio = 1.0;  // of the traces that begin here, or of all

  // name: "parentbased_always_on", "traceidratio" and so on; "": the first of these. argument: the
  // ratio of those that have one; "": 1. Errors (invalid input): neither, without the variable's
  // name.
  static Result<Sampler> parse(std::string_view name, std::string_view argument);
  // parent: null: the trace begins here.
  bool samples(std::string_view trace_id, const TraceContext* parent) const;
  // A span of this process for a request with these headers ("": absent).
  RequestTrace begin(std::string_view traceparent, std::string_view tracestate) const;
};

}  // namespace wideep::traces
