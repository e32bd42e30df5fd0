// SPDX-License-Identifier: Apache-2.0
//
// The queue holds all requests as values, and a request in flight is its own cursor: token_offset
// moves on and num_tokens counts down. Requests add one token each in turn, as in a server that
// decodes. The shuffle is written out, because the standard leaves the order of std::shuffle open
// and a replay must be the same everywhere.
#include "online/request_stream.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

namespace wideep::online {
namespace {

// As std::shuffle, whose order differs between standard libraries; a replay must not.
void shuffle(std::span<Request> requests, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = requests.size(); i > 1; --i) {
    std::swap(requests[i - 1], requests[random() % i]);
  }
}

}  // namespace

int64_t num_iterations(const RequestTrace& trace, const StreamOptions& options) {
  std::vector<int64_t> tokens(trace.domains.size());
  for (const Request& request : trace.requests) {
    tokens[static_cast<size_t>(request.domain)] += request.num_tokens;
  }
  int64_t sum = 0;
  for (const int domain : options.domains) sum += tokens[static_cast<size_t>(domain)];
  if (options.domains.empty()) sum = trace.num_tokens();
  const int64_t each = std::max<int64_t>(1, options.iteration_tokens);
  return (sum * std::max(1, options.cycles) + each / 2) / each;
}

std::span<const int64_t> Iteration::counts_of(int layer_idx) const {
  const auto experts = static_cast<size_t>(num_experts);
  return std::span<const int64_t>(counts).subspan(static_cast<size_t>(layer_idx) * experts,
                                                  experts);
}

RequestStream::RequestStream(const RequestTrace* trace, const StreamOptions& options)
    : trace_(trace), options_(options), tokens_of_domain_(trace->domains.size()) {
  if (options_.domains.empty()) {
    options_.domains.resize(trace->domains.size());
    std::iota(options_.domains.begin(), options_.domains.end(), 0);
  }
  std::vector<int> times(trace->domains.size());
  for (int cycle = 0; cycle < options_.cycles; ++cycle) {
    for (const int domain : options_.domains) {
      queue_domain(domain, times[static_cast<size_t>(domain)]++);
    }
  }
}

void RequestStream::queue_domain(int domain, int times_before) {
  const size_t begin = queue_.size();
  for (const Request& request : trace_->requests) {
    if (request.domain == domain) queue_.push_back(request);
  }
  if (times_before == 0 && options_.seed == 0) return;
  // Different for every domain and repetition, but fixed for a given seed.
  const uint64_t seed = options_.seed * 1000003 + static_cast<uint64_t>(domain) * 1009 +
                        static_cast<uint64_t>(times_before);
  shuffle(std::span<Request>(queue_).subspan(begin), seed);
}

void RequestStream::add_token(const Request& request, Iteration* iteration) {
  const int64_t token = request.token_offset;
  int64_t* counts = iteration->counts.data();
  for (int layer = 0; layer < trace_->shape.num_layers; ++layer, counts += iteration->num_experts) {
    for (const uint16_t expert : trace_->experts(request.file, token, layer)) ++counts[expert];
  }
  ++iteration->num_tokens;
  ++tokens_of_domain_[static_cast<size_t>(request.domain)];
}

// Adds one token of the request whose turn it is. An ended request gives its place to the next one
// in the queue, as in a server.
void RequestStream::take_turn(Iteration* iteration) {
  Request& request = in_flight_[turn_];
  add_token(request, iteration);
  ++request.token_offset;
  if (--request.num_tokens > 0) {
    ++turn_;
  } else if (next_request_ < queue_.size()) {
    in_flight_[turn_++] = queue_[next_request_++];
  } else {
    in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(turn_));
  }
  if (turn_ >= in_flight_.size()) turn_ = 0;
}

bool RequestStream::next(Iteration* iteration) {
  while (static_cast<int>(in_flight_.size()) < options_.in_flight &&
         next_request_ < queue_.size()) {
    in_flight_.push_back(queue_[next_request_++]);
  }
  iteration->num_experts = trace_->shape.num_experts;
  iteration->num_tokens = 0;
  iteration->counts.assign(
      static_cast<size_t>(trace_->shape.num_layers) * static_cast<size_t>(iteration->num_experts),
      0);
  std::fill(tokens_of_domain_.begin(), tokens_of_domain_.end(), 0);
  while (!in_flight_.empty() && iteration->num_tokens < options_.iteration_tokens) {
    take_turn(iteration);
  }
  iteration->domain =
      static_cast<int>(std::max_element(tokens_of_domain_.begin(), tokens_of_domain_.end()) -
                       tokens_of_domain_.begin());
  return iteration->num_tokens > 0 && iteration->num_tokens * 2 >= options_.iteration_tokens;
}

}  // namespace wideep::online
