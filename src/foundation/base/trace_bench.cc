// SPDX-License-Identifier: Apache-2.0
//
// The cost of a span in a thread that does not record, in one outside the recorded range of
// iterations, and inside it.
#include <benchmark/benchmark.h>

#include "base/trace.h"

namespace wideep::base {
namespace {

enum When { kNotAsked, kOutsideTheRange, kInsideTheRange };

// The buffer holds all events of the loop, because a dropped event would cost less than a recorded
// one.
constexpr int64_t kEvents = int64_t{1} << 20;

TraceBuffer& buffer() {
  static TraceBuffer made = TraceBuffer::create(1, kEvents).value();
  return made;
}

void bench_span(benchmark::State& state, When when) {
  TraceSwitch rank_switch;
  rank_switch.set({.iteration = 1, .on = when == kInsideTheRange});
  if (when != kNotAsked) trace_of_thread = {.rank_switch = &rank_switch, .buffer = &buffer()};
  int layer = 0;
  for (auto _ : state) {
    const TraceSpan span(Span::kExperts, layer);
    benchmark::DoNotOptimize(++layer);
  }
  trace_of_thread = {};
}
BENCHMARK_CAPTURE(bench_span, not_asked_for, kNotAsked);
BENCHMARK_CAPTURE(bench_span, outside_the_range, kOutsideTheRange);
BENCHMARK_CAPTURE(bench_span, inside_the_range, kInsideTheRange)->Iterations(kEvents);

}  // namespace
}  // namespace wideep::base
