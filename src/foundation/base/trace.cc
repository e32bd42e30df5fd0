// SPDX-License-Identifier: Apache-2.0
//
// One atomic addition gives an event its place, so recording needs no lock, and what does not fit
// is dropped and counted. Ranks write to parts of their own, and their counters are a cache line
// apart, or recording would slow down what it measures.
#include "base/trace.h"

#include <algorithm>

namespace wideep::base {
namespace {

// The count of each rank has its own cache line: otherwise ranks would slow each other down.
constexpr size_t kCounterBytes = 64;

}  // namespace

const char* span_name(Span span) {
  static constexpr const char* kNames[] = {"iteration",
                                           "wait: stage",
                                           "start of iteration",
                                           "attention",
                                           "MLP",
                                           "wait: batch",
                                           "router",
                                           "begin",
                                           "choose slots",
                                           "push rows",
                                           "wait: rows",
                                           "experts",
                                           "shared expert",
                                           "wait: results",
                                           "reduce",
                                           "LM head",
                                           "sampling",
                                           "predicting",
                                           "drafting",
                                           "rows travel",
                                           "results travel",
                                           "switch layer",
                                           "decide",
                                           "plan layer",
                                           "post plan",
                                           "copy layer",
                                           "copy expert",
                                           "copy expert: wrong hash",
                                           "allocation"};
  static_assert(std::size(kNames) == static_cast<size_t>(Span::kCount));
  return kNames[static_cast<size_t>(span)];
}

const char* detail_name(Span span) {
  switch (span) {
    case Span::kCopyExpert:
    case Span::kCopyWrongHash:
      return "expert";
    case Span::kAllocation:
      return "bytes";
    default:
      return nullptr;
  }
}

const char* lane_name(Lane lane) {
  static constexpr const char* kNames[] = {"forward",
                                           "rows (even calls)",
                                           "rows (odd calls)",
                                           "results (even calls)",
                                           "results (odd calls)",
                                           "balancer",
                                           "copies of experts",
                                           "allocations"};
  static_assert(std::size(kNames) == static_cast<size_t>(Lane::kCount));
  return kNames[static_cast<size_t>(lane)];
}

Result<TraceBuffer> TraceBuffer::create(int num_ranks, size_t events_per_rank) {
  TraceBuffer buffer;
  buffer.num_ranks_ = num_ranks;
  buffer.events_per_rank_ = events_per_rank;
  const size_t bytes_per_rank = kCounterBytes + events_per_rank * sizeof(TraceEvent);
  Result<SharedBytes> bytes =
      SharedBytes::create("profile", static_cast<size_t>(num_ranks) * bytes_per_rank);
  if (!bytes.ok()) return bytes.status();
  buffer.bytes_ = std::move(*bytes);
  return buffer;
}

// Layout of the memory: the counts of all ranks, then the events of each rank. The zeroed memory is
// a valid start for both: counts of 0, and events that are marked as unwritten.
std::atomic<uint64_t>& TraceBuffer::added(int rank) const {
  return *reinterpret_cast<std::atomic<uint64_t>*>(bytes_.data() +
                                                   static_cast<size_t>(rank) * kCounterBytes);
}

TraceEvent* TraceBuffer::events_of(int rank) const {
  std::byte* events = bytes_.data() + static_cast<size_t>(num_ranks_) * kCounterBytes;
  return reinterpret_cast<TraceEvent*>(events) + static_cast<size_t>(rank) * events_per_rank_;
}

void TraceBuffer::add(int rank, const TraceEvent& event) const {
  // The count gives each event its own place, so threads need no lock. It keeps counting when the
  // memory is full: the excess is the number of dropped events. Relaxed order suffices, because
  // events are read after the writing process has ended.
  const uint64_t at = added(rank).fetch_add(1, std::memory_order_relaxed);
  if (at < events_per_rank_) events_of(rank)[at] = event;
}

std::span<const TraceEvent> TraceBuffer::events(int rank) const {
  return {events_of(rank), std::min<size_t>(added(rank).load(), events_per_rank_)};
}

uint64_t TraceBuffer::num_dropped(int rank) const {
  return added(rank).load() - events(rank).size();
}

TraceRecorder TraceRecorder::on_lane(Lane other, std::span<const int> its_layers) const {
  TraceRecorder recorder = *this;
  recorder.lane = other;
  recorder.layers = its_layers;
  recorder.allocations = false;  // only the forward thread's: they all share one lane
  return recorder;
}

void add_to_trace(int64_t start_ns, Span span, int layer, Lane lane, int64_t detail) {
  const TraceRecorder& recorder = trace_of_thread;
  recorder.buffer->add(recorder.rank, {.start_ns = start_ns,
                                       .end_ns = wall_ns(),
                                       .iteration = recorder.rank_switch->get().iteration,
                                       .detail = detail,
                                       .layer = recorder.model_layer(layer),
                                       .span = span,
                                       .lane = lane});
}

void TraceSpan::begin() {
  const TraceRecorder& recorder = trace_of_thread;
  const TraceSwitch::State state = recorder.rank_switch->get();
  // The iteration at the start counts: the forward thread may move on while another thread's span
  // still runs.
  iteration_ = state.iteration;
  if (recorder.marks != nullptr && (recorder.marks->all_spans || span_ == Span::kIteration)) {
    marks_ = recorder.marks;
    marks_->begin(span_, recorder.model_layer(layer_), iteration_);
  }
  if (state.on) start_ns_ = wall_ns();
}

void TraceSpan::end() const {
  const TraceRecorder& recorder = trace_of_thread;
  if (start_ns_ != 0) {
    recorder.buffer->add(recorder.rank, {.start_ns = start_ns_,
                                         .end_ns = wall_ns(),
                                         .iteration = iteration_,
                                         .detail = detail_,
                                         .layer = recorder.model_layer(layer_),
                                         .span = span_,
                                         .lane = recorder.lane});
  }
  if (marks_ != nullptr) marks_->end();
}

}  // namespace wideep::base
