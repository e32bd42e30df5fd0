// SPDX-License-Identifier: Apache-2.0
//
// A recorded trace in the order of a server: several requests are in flight and generate one token
// each in turn, the next request starts when one ends, and the kind of text changes over time.
//
//   RequestStream stream(&trace, {.domains = {0, 1, 0}});
//   Iteration iteration;
//   while (stream.next(&iteration)) policy->add_counts(0, iteration.counts_of(0));
//
// Thread safety: one thread at a time. Deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "online/request_trace.h"

namespace wideep::online {

struct StreamOptions {
  // Domains one after the other, each with all its requests; empty: in the index's order. A domain
  // that is repeated has its requests in another order.
  std::vector<int> domains = {};
  int cycles = 1;                   // repetitions of the list of domains, ≥ 1 (a replay: ≤ 1000)
  int in_flight = 64;               // requests at once, ≥ 1
  int64_t iteration_tokens = 2048;  // ≥ 1
  uint64_t seed = 0;                // of these orders; not 0: shuffles the first time too
};

// The number of iterations of the whole stream, ± 1.
int64_t num_iterations(const RequestTrace& trace, const StreamOptions& options);

// The tokens of one iteration.
struct Iteration {
  int num_experts = 0;
  std::vector<int64_t> counts;  // [layer, E]
  int64_t num_tokens = 0;
  int domain = 0;  // of most tokens

  std::span<const int64_t> counts_of(int layer_idx) const;
};

// Where a replay gets its iterations from: false at the end.
using NextIteration = std::function<bool(Iteration*)>;

class RequestStream {
 public:
  // The trace must outlive the stream.
  RequestStream(const RequestTrace* trace, const StreamOptions& options);

  // False at the end. A rest of less than half an iteration is dropped.
  bool next(Iteration* iteration);

 private:
  void queue_domain(int domain, int times_before);
  void take_turn(Iteration* iteration);
  void add_token(const Request& request, Iteration* iteration);

  const RequestTrace* trace_;
  StreamOptions options_;
  std::vector<Request> queue_;
  size_t next_request_ = 0;
  std::vector<Request> in_flight_;
  size_t turn_ = 0;  // index into in_flight_
  std::vector<int64_t> tokens_of_domain_;
};

}  // namespace wideep::online
