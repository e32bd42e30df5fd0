// SPDX-License-Identifier: Apache-2.0
//
// What each rank did when: spans of time on one clock, in memory that the parent of the ranks reads
// when they have ended (formats/chrome_trace.h writes it down).
//
// A thread records where trace_of_thread says into what, while the rank's TraceSwitch is on.
// Elsewhere a span costs one look at it.
//
//   { TraceSpan span(Span::kExperts, layer);  ... }          // what this thread does
//   const int64_t start = trace_start();  ...                // what happens beside it
//   trace_since(start, Span::kRowsTravel, layer, lane);
//
//   // a thread of the rank's own, on a lane of its own
//   std::thread([trace = trace_of_thread.beside(Lane::kCopies, layers)] {
//     trace_of_thread = trace;  ... });
//
// Thread safety: any thread may record. Events are read when the ranks have ended.
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
  kSwitchLayer,    // a layer's slots and routing table, between two iterations
  kDecide,         // the balancer: from an iteration's counts to plans
  kPlan,           // and in it one layer's
  kPost,           // a plan, or a step of it, told to all ranks
  kCopyLayer,      // all experts that this rank's slots of it get
  kCopyExpert,     // and in it one of them, with its hash
  kCopySpoilt,     // the same where the hash is not the host pool's
  kAllocation,     // memory obtained by the forward thread
  kCount
};
const char* span_name(Span span);
// What TraceEvent::detail counts or names; null: nothing.
const char* detail_name(Span span);

// Spans of one lane of one rank lie side by side or inside each other.
enum class Lane : uint16_t {
  kForward,
  kRowsEven,  // of a call with an even number; the next may begin before it ends
  kRowsOdd,
  kResultsEven,
  kResultsOdd,
  kBalancer,  // the thread that plans
  kCopies,    // the thread that copies experts into spare records
  kAllocations,
  kCount
};
const char* lane_name(Lane lane);

struct TraceEvent {
  int64_t start_ns = 0;   // of wall_ns: one clock for all processes of a machine
  int64_t end_ns = 0;     // 0: never written
  int64_t iteration = 0;  // that the rank's forward thread was in at the start
  int64_t detail = 0;
  int32_t layer = -1;  // −1: none
  Span span = Span::kIteration;
  Lane lane = Lane::kForward;
};

// Room for the same number of events of each rank. Pages come with the first use.
class TraceBuffer {
 public:
  static constexpr size_t kEventsPerRank = size_t{1} << 19;  // 20 MiB
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

// Whether a rank records now, and which iteration it is in: its forward thread sets it, all threads
// of it look.
class TraceSwitch {
 public:
  struct State {
    int64_t iteration = 0;
    bool on = false;
  };
  void set(State state) {
    word_.store(state.iteration * 2 + (state.on ? 1 : 0), std::memory_order_relaxed);
  }
  State get() const {
    const int64_t word = word_.load(std::memory_order_relaxed);
    return {word / 2, word % 2 == 1};
  }

 private:
  std::atomic<int64_t> word_{0};  // both in one: no thread sees one without the other
};

// Spans as another profiler shows them while they last, whether the switch is on or not.
struct TraceMarks {
  void (*begin)(Span span, int layer, int64_t iteration) = nullptr;
  void (*end)() = nullptr;  // of the last begun on this thread
  bool all_spans = false;   // else the iterations alone
};

// One thread's way into the buffer. What it points to outlives the thread's use of it.
struct TraceRecorder {
  const TraceSwitch* rank_switch = nullptr;  // null: this thread does not record
  const TraceBuffer* buffer = nullptr;       // null: the switch stays off
  const TraceMarks* marks = nullptr;         // null: none
  std::span<const int> layers = {};  // this thread's number of a layer → the model's; empty: same
  int rank = 0;
  Lane lane = Lane::kForward;
  bool allocations = false;  // memory that the thread obtains is recorded too

  bool on() const { return rank_switch != nullptr && rank_switch->get().on; }
  int model_layer(int layer) const {
    return layer < 0 || layers.empty() ? layer : layers[static_cast<size_t>(layer)];
  }
  // For another thread of the rank.
  TraceRecorder beside(Lane other, std::span<const int> its_layers) const;
};
inline constinit thread_local TraceRecorder trace_of_thread;

// Now; 0 where this thread does not record.
inline int64_t trace_start() { return trace_of_thread.on() ? wall_ns() : 0; }
void add_to_trace(int64_t start_ns, Span span, int layer, Lane lane, int64_t detail = 0);
inline void trace_since(int64_t start_ns, Span span, int layer, Lane lane) {
  if (start_ns != 0) add_to_trace(start_ns, span, layer, lane);
}

// Around what obtains memory: now; 0 where that is not recorded.
inline int64_t allocation_start() { return trace_of_thread.allocations ? trace_start() : 0; }
inline void allocated_since(int64_t start_ns, size_t bytes) {
  if (start_ns == 0) return;
  add_to_trace(start_ns, Span::kAllocation, -1, Lane::kAllocations, static_cast<int64_t>(bytes));
}

class TraceSpan {
 public:
  explicit TraceSpan(Span span, int layer = -1, int64_t detail = 0)
      : span_(span), layer_(layer), detail_(detail) {
    if (trace_of_thread.rank_switch != nullptr) begin();
  }
  ~TraceSpan() {
    if (start_ns_ != 0 || marks_ != nullptr) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

  // It has turned out to be another one; marks have been told.
  void becomes(Span span) { span_ = span; }

 private:
  void begin();
  void end() const;

  Span span_;
  int layer_;
  int64_t detail_;
  int64_t start_ns_ = 0;
  int64_t iteration_ = 0;
  const TraceMarks* marks_ = nullptr;
};

}  // namespace wideep::base
