// SPDX-License-Identifier: Apache-2.0
//
// What each rank did when: spans of time on one clock, in memory that the parent of the ranks reads
// when they have ended (formats/chrome_trace.h writes it down).
//
// A thread records while trace_of_thread points to a recorder. Where it does not, a span costs one
// look at it.
//
//   { TraceSpan span(Span::kExperts, layer);  ... }          // what this thread does
//   const int64_t start = trace_start();  ...                // what happens beside it
//   trace_since(start, Span::kRowsTravel, layer, lane);
//
// Thread safety: several threads may record for a rank, each with a recorder of its own. Events are
// read when the ranks have ended.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/cpu_time.h"
#include "base/shared_bytes.h"
#include "wideep/status.h"

namespace wideep::base {

enum class Span : uint16_t {
  kIteration,
  kAwaitStage,  // the wait for rows or tokens of another stage
  kAgree,       // the wait for all ranks at its start
  kAttention,
  kMlp,
  kMeet,  // the wait for ranks that share the batch
  kRouter,
  kBegin,        // counts told
  kChooseSlots,  // by the counts of all ranks, where these are awaited
  kPush,
  kAwaitRows,  // and sorting them
  kExperts,
  kSharedExpert,
  kAwaitResults,
  kReduce,
  kHead,
  kSampling,
  kRowsTravel,     // from the end of kPush to the end of kAwaitRows
  kResultsTravel,  // from the end of kExperts to the end of kAwaitResults
  kCount
};
const char* span_name(Span span);

// Spans of one lane of one rank lie side by side or inside each other.
enum class Lane : uint16_t {
  kForward,
  kRowsEven,  // of a call with an even number; the next may begin before it ends
  kRowsOdd,
  kResultsEven,
  kResultsOdd,
  kCount
};
const char* lane_name(Lane lane);

struct TraceEvent {
  int64_t start_ns = 0;  // of wall_ns: one clock for all processes of a machine
  int64_t end_ns = 0;    // 0: never written
  int64_t iteration = 0;
  int32_t layer = -1;  // −1: none
  Span span = Span::kIteration;
  Lane lane = Lane::kForward;
};

// Room for the same number of events of each rank. Pages come with the first use.
class TraceBuffer {
 public:
  static constexpr size_t kEventsPerRank = size_t{1} << 19;  // 16 MiB
  // Made before the ranks are forked. Errors (failed): the kernel refuses the memory.
  static Result<TraceBuffer> create(int num_ranks, size_t events_per_rank = kEventsPerRank);

  int num_ranks() const { return num_ranks_; }
  // Drops it when the rank's room is used up.
  void add(int rank, const TraceEvent& event) const;
  // In the order in which they ended; some may never have been written by a rank that died.
  std::span<const TraceEvent> events(int rank) const;
  uint64_t num_dropped(int rank) const;

 private:
  TraceBuffer() = default;
  std::atomic<uint64_t>& added(int rank) const;
  TraceEvent* room_of(int rank) const;

  SharedBytes bytes_;
  int num_ranks_ = 0;
  size_t events_per_rank_ = 0;
};

// One thread's way into the buffer.
struct TraceRecorder {
  const TraceBuffer* buffer = nullptr;
  int rank = 0;
  int64_t iteration = 0;
};
inline constinit thread_local const TraceRecorder* trace_of_thread = nullptr;

// Now; 0 where this thread does not record.
inline int64_t trace_start() { return trace_of_thread == nullptr ? 0 : wall_ns(); }
void add_to_trace(int64_t start_ns, Span span, int layer, Lane lane);
inline void trace_since(int64_t start_ns, Span span, int layer, Lane lane = Lane::kForward) {
  if (start_ns != 0) add_to_trace(start_ns, span, layer, lane);
}

class TraceSpan {
 public:
  explicit TraceSpan(Span span, int layer = -1) : span_(span), layer_(layer) {}
  ~TraceSpan() { trace_since(start_ns_, span_, layer_); }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Span span_;
  int layer_;
  int64_t start_ns_ = trace_start();
};

}  // namespace wideep::base
