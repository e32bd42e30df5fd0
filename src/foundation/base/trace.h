// SPDX-License-Identifier: Apache-2.0
//
// Traces: time spans of all ranks on one clock, recorded in shared memory. The parent process of
// the ranks reads them after the ranks have ended; formats/chrome_trace.h writes them to a file.
//
// A thread records through its trace_of_thread while the rank's TraceSwitch is on. In a thread that
// does not record, a span costs the test of one pointer.
//
//   { TraceSpan span(Span::kExperts, layer);  ... }          // work of this thread
//   const int64_t start = trace_start();  ...                // an event that overlaps that work
//   record_since(start, Span::kRowsTravel, layer, lane);
//
//   // another thread of the same rank, on its own lane
//   std::thread([trace = trace_of_thread.on_lane(Lane::kCopies, layers)] {
//     trace_of_thread = trace;  ... });
//
// Thread safety: any thread may record. Events are read after the ranks have ended.
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
  kAgree,       // the wait for all ranks at the start of an iteration
  kAttention,
  kMlp,
  kMeet,  // the wait for ranks that share the batch
  kRouter,
  kBegin,        // publishes token counts
  kChooseSlots,  // and, where the choice depends on them, the wait for the counts of all ranks
  kPush,
  kAwaitRows,  // the wait for rows, and sorting them
  kExperts,
  kSharedExpert,
  kAwaitResults,
  kReduce,
  kHead,
  kSampling,
  kPredicting,     // passes of the prediction layer; with the parts of a layer inside
  kDrafting,       // what may follow the sampled tokens
  kRowsTravel,     // from the end of kPush to the end of kAwaitRows
  kResultsTravel,  // from the end of kExperts to the end of kAwaitResults
  kSwitchLayer,    // new slots and routing table of a layer, between two iterations
  kDecide,         // the balancer makes plans from the counts of an iteration
  kPlan,           // the plan of one layer; inside kDecide
  kPost,           // publishes a plan, or a step of it, to all ranks
  kCopyLayer,      // copies all experts that move into this rank's slots of a layer
  kCopyExpert,     // copies one expert and hashes it; inside kCopyLayer
  kCopyWrongHash,  // a kCopyExpert whose hash differs from the host pool's
  kAllocation,     // the forward thread allocates memory
  kCount
};
const char* span_name(Span span);
// The name of the number in TraceEvent::detail; null: the span has none.
const char* detail_name(Span span);

// A row of the picture of one rank. Spans of one lane nest: none overlaps another in part.
enum class Lane : uint16_t {
  kForward,
  kRowsEven,  // of dispatch calls with an even number: two consecutive calls may overlap
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
  int64_t start_ns = 0;   // wall_ns(), a clock that all processes of a machine share
  int64_t end_ns = 0;     // 0: the event was never written
  int64_t iteration = 0;  // of the rank's forward thread when the event began
  int64_t detail = 0;     // see detail_name()
  int32_t layer = -1;     // −1: none
  Span span = Span::kIteration;
  Lane lane = Lane::kForward;
};

// Shared memory for events, the same number for each rank. Pages are allocated at their first use.
class TraceBuffer {
 public:
  static constexpr size_t kEventsPerRank = size_t{1} << 19;  // 20 MiB
  // Call it before the ranks are forked. Errors (failed): the kernel refuses the memory.
  static Result<TraceBuffer> create(int num_ranks, size_t events_per_rank = kEventsPerRank);

  int num_ranks() const { return num_ranks_; }
  // Drops the event when the rank's memory is full.
  void add(int rank, const TraceEvent& event) const;
  // In the order in which they ended. If the rank crashed, some may be unwritten (end_ns is 0).
  std::span<const TraceEvent> events(int rank) const;
  uint64_t num_dropped(int rank) const;

 private:
  TraceBuffer() = default;
  std::atomic<uint64_t>& added(int rank) const;
  TraceEvent* events_of(int rank) const;

  SharedBytes bytes_;
  int num_ranks_ = 0;
  size_t events_per_rank_ = 0;
};

// Whether a rank records now, and its current iteration. The rank's forward thread sets it; all
// threads of the rank read it.
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
  // Iteration × 2 + on. One word, so that no thread sees a new iteration with an old switch.
  // Relaxed order suffices, because the word guards no other memory.
  std::atomic<int64_t> word_{0};
};

// Callbacks that show spans in another profiler while they run, even when the switch is off.
struct TraceMarks {
  void (*begin)(Span span, int layer, int64_t iteration) = nullptr;
  void (*end)() = nullptr;  // ends the last span that this thread began
  bool all_spans = false;   // false: iterations only
};

// The trace settings of one thread. All pointers must stay valid while the thread uses it.
struct TraceRecorder {
  const TraceSwitch* rank_switch = nullptr;  // null: this thread does not record
  const TraceBuffer* buffer = nullptr;       // null: the switch stays off
  const TraceMarks* marks = nullptr;         // null: none
  std::span<const int> layers = {};  // the thread's layer number → the model's; empty: the same
  int rank = 0;
  Lane lane = Lane::kForward;
  bool allocations = false;  // record memory allocations of this thread too

  bool on() const { return rank_switch != nullptr && rank_switch->get().on; }
  int model_layer(int layer) const {
    return layer < 0 || layers.empty() ? layer : layers[static_cast<size_t>(layer)];
  }
  // The recorder for another thread of this rank, with its lane and its layers.
  TraceRecorder on_lane(Lane other, std::span<const int> its_layers) const;
};
// The recorder of the calling thread.
inline constinit thread_local TraceRecorder trace_of_thread;

// The current time, or 0 if this thread does not record.
inline int64_t trace_start() { return trace_of_thread.on() ? wall_ns() : 0; }
// Records an event from start_ns to now. REQUIRES: start_ns is not 0.
void add_to_trace(int64_t start_ns, Span span, int layer, Lane lane, int64_t detail = 0);
// The same, and nothing if start_ns is 0.
inline void record_since(int64_t start_ns, Span span, int layer, Lane lane) {
  if (start_ns != 0) add_to_trace(start_ns, span, layer, lane);
}

// Called before and after an allocation of memory. The first returns the current time, or 0 if this
// thread does not record allocations.
inline int64_t allocation_start() { return trace_of_thread.allocations ? trace_start() : 0; }
inline void record_allocation(int64_t start_ns, size_t bytes) {
  if (start_ns == 0) return;
  add_to_trace(start_ns, Span::kAllocation, -1, Lane::kAllocations, static_cast<int64_t>(bytes));
}

// Records an event from its construction to its destruction.
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

  // Records the event as another span. TraceMarks keep showing the first one.
  void change_to(Span span) { span_ = span; }

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
