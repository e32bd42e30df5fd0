// SPDX-License-Identifier: Apache-2.0
#include "traces/sampler.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>

#include "base/printable.h"
#include "base/random_hex.h"

namespace wideep::traces {

Result<Sampler> Sampler::parse(std::string_view name, std::string_view argument) {
  constexpr std::string_view kParentBased = "parentbased_";
  Sampler sampler;
  if (name.empty()) return sampler;
  std::string_view rest = name;
  sampler.heeds_parent = rest.starts_with(kParentBased);
  if (sampler.heeds_parent) rest.remove_prefix(kParentBased.size());
  if (rest == "always_on") return sampler;
  if (rest == "always_off") {
    sampler.ratio = 0.0;
    return sampler;
  }
  if (rest != "traceidratio") {
    return invalid_input(fmt::format(
        "OTEL_TRACES_SAMPLER: expected always_on, always_off or traceidratio, each also as "
        "parentbased_…, found '{}'",
        base::printable(name, 60)));
  }
  if (argument.empty()) return sampler;
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), sampler.ratio);
  const bool is_number = error == std::errc() && end == argument.data() + argument.size();
  if (is_number && sampler.ratio >= 0.0 && sampler.ratio <= 1.0) return sampler;
  return invalid_input(
      fmt::format("OTEL_TRACES_SAMPLER_ARG: expected a ratio of 0 to 1, found '{}'",
                  base::printable(argument, 60)));
}

// As OpenTelemetry's libraries choose: the last 63 bits of the id against the share of 2^63.
bool Sampler::samples(std::string_view trace_id, const TraceContext* parent) const {
  if (heeds_parent && parent != nullptr) return parent->is_sampled;
  if (ratio >= 1.0) return true;
  uint64_t bits = 0;
  const std::string_view last = trace_id.substr(16);
  std::from_chars(last.data(), last.data() + last.size(), bits, 16);
  return bits >> 1 < static_cast<uint64_t>(std::ldexp(ratio, 63));
}

RequestTrace Sampler::begin(std::string_view traceparent, std::string_view tracestate) const {
  RequestTrace trace;
  const std::optional<TraceContext> parent = parse_traceparent(traceparent);
  if (parent) {
    trace.parent_id = parent->span_id;
    if (is_tracestate(tracestate)) trace.state = tracestate;
  }
  trace.own.trace_id = parent ? parent->trace_id : base::random_hex(16);
  trace.own.span_id = base::random_hex(8);
  trace.own.is_sampled = samples(trace.own.trace_id, parent ? &*parent : nullptr);
  return trace;
}

}  // namespace wideep::traces
