// SPDX-License-Identifier: Apache-2.0
//
// Rate matching (TensorRT-LLM's tech blog 5): how many servers that compute prompts go with how
// many that generate, so that both carry the same requests per second.
//
// Thread safety: pure functions.
#pragma once

#include <optional>

namespace wideep::advise {

struct ServerRate {
  double requests = 0.0;  // per second, of one server; more than 0
  int ranks = 1;
};

struct RatioLimits {
  int max_servers = 16;        // of a kind
  int max_generation = 16;     // of those that generate, too
  int max_ranks = 64;          // of all servers together
  std::optional<double> rate;  // requests per second that they carry, on as few ranks as possible
};

struct ServerRatio {
  int prefill = 0, generation = 0;  // servers
  double requests = 0.0;            // per second, of all servers: what the slower kind carries
  int ranks = 0;                    // of all servers

  double requests_per_rank() const { return requests / ranks; }
};

// Of all whole numbers within the limits the fewest ranks whose requests of a rank are within 2 %
// of the best. nullopt: none is within the limits.
std::optional<ServerRatio> match_rates(const ServerRate& prefill, const ServerRate& generation,
                                       const RatioLimits& limits);

// Requests per second of a rank if the ratio of servers were exact, as the blog's curves have it.
double exact_requests_per_rank(const ServerRate& prefill, const ServerRate& generation);

}  // namespace wideep::advise
