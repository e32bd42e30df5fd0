// SPDX-License-Identifier: Apache-2.0
//
// The routing log: which tokens each rank sent to which rank and expert, iteration by iteration,
// for pictures and for evaluating a placement. `wideep generate --routing-log` writes it, `wideep
// balance picture` reads it; docs/routing_log.md describes the file.
//
// The unit is the pair (token, expert): a token that goes to top_k experts counts top_k times, also
// if several of them are on the same rank, and also if sender and receiver are the same rank.
//
//   RoutingLog log = ...;
//   WIDEEP_TRY(write_routing_log("routing.json", log));
//   WIDEEP_TRY_ASSIGN(RoutingLog again, read_routing_log("routing.json"));   // again == log
//
// Thread safety: plain values; the functions are pure except for the file they read or write.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::recordings {

// JSON keys have the names of the members. L = layers.size(), R = ep_size, E = num_experts.
struct RoutingLog {
  struct Iteration {
    int iteration = 0;  // the engine's iteration number
    // Tokens of this iteration over all ranks.
    int64_t prompt_tokens = 0;
    int64_t generated_tokens = 0;
    // [L][R][R] pairs: [layer][sending rank][receiving rank].
    std::vector<std::vector<std::vector<int32_t>>> sent;
    // [L][R][E] pairs: tokens that this rank's router sent to each expert.
    std::vector<std::vector<std::vector<int32_t>>> counts;
    // [L] µs: the maximum over ranks of the CPU time of the layer's experts.
    std::vector<double> critical_path_us;

    bool operator==(const Iteration&) const = default;
  };

  // A layer's slots have changed: experts were copied, then all ranks went over to them.
  struct LayerUpdate {
    int layer = 0;         // the model's index, one of `layers`
    int64_t decided = 0;   // the last iteration whose load the decision knew
    int64_t switched = 0;  // the first iteration with the new slots, > decided
    int64_t moves = 0;     // experts copied

    bool operator==(const LayerUpdate&) const = default;
  };

  std::string model;  // name of the model's directory
  int ep_size = 0;
  int num_experts = 0;
  int num_slots = 0;  // over all ranks: ≥ E and a multiple of R
  int top_k = 0;
  std::vector<int> layers;            // the model's indices of its MoE layers, ascending
  std::vector<std::string> requests;  // a label each: the start of the prompt, UTF-8
  double tokens_per_second = 0;       // generated tokens / wall time
  double critical_path_ms = 0;        // sum of critical_path_us over layers and iterations
  double wall_ms = 0;
  std::vector<Iteration> iterations;       // iteration ascending; at least one
  std::vector<LayerUpdate> layer_updates;  // of online balancing, `switched` ascending
  // [requests][L][E] pairs over the whole life of each request.
  std::vector<std::vector<std::vector<int64_t>>> request_counts;

  bool operator==(const RoutingLog&) const = default;
};

// Checks everything that a reader relies on: each size as documented above, nothing negative, times
// and sums of tokens and of moves at most 2^53, layers and iterations ascending, and for each
// iteration, layer and rank equally many pairs in `sent` and in `counts`. Errors (invalid input):
// "<key with indices>: expected ..., found ...".
Status check_routing_log(const RoutingLog& log);

// Writes the file completely or not at all, one iteration per line; labels that are not UTF-8 get
// U+FFFD. Errors: those of check_routing_log (invalid input); more than 256 MiB of text (invalid
// input); not writable (failed).
Status write_routing_log(const std::string& path, const RoutingLog& log);

// The text that write_routing_log writes. REQUIRES: check_routing_log(log) is ok.
std::string format_routing_log(const RoutingLog& log);

// Errors (invalid input): as check_routing_log; unreadable; not JSON; a missing or unknown key;
// another version.
Result<RoutingLog> read_routing_log(const std::string& path);
// The same for text in memory; `name` is the file's name in messages.
Result<RoutingLog> parse_routing_log(std::string_view text, const std::string& name);

}  // namespace wideep::recordings
