// SPDX-License-Identifier: Apache-2.0
//
// What happens in a run, as the process that started the ranks pulls it (run/rank_group.h): one
// stream of events, in the order in which they come.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "online/online_balancer.h"

namespace wideep::run {

// What a rank has sent to other nodes, or all ranks together.
struct NodeTraffic {
  int64_t dispatched_rows = 0;  // that had to cross: one for each (token, node, layer)
  int64_t dispatched_bytes = 0;
  // Results that had to come back for them: one for each (token, expert, layer); where the combine
  // is reduced, for each (token, node, layer).
  int64_t returned_rows = 0;
  int64_t returned_bytes = 0;
  int64_t other_bytes = 0;  // counts, flags, rows of a pipeline, plans

  void add(const NodeTraffic& other);
};

// ---- events ----

// A rank has read so many more bytes of weights.
struct WeightsRead {
  uint64_t bytes = 0;
};
// All ranks have their weights and follow their feeds.
struct RanksReady {};
// Of a request. The iteration that made it follows its tokens.
struct Token {
  int request_index = 0;
  engine::Sampled sampled;
  engine::FinishReason finish_reason = engine::FinishReason::kNotFinished;
  int cached_tokens = 0;  // of the prompt, that were taken over from others
  std::string digest;     // with the last token, where RunOptions::logits_digest
  std::vector<engine::Sampled> likely;
};
// An iteration as every rank saw it.
struct Iteration {
  std::vector<engine::IterationRecord> ranks;  // [world_size]
};
// All ranks have begun to record experts, or have ended it: every iteration with counts has come.
struct ExpertRecording {
  bool records = false;
};
// Experts have moved, or were given up.
using Rebalance = online::Rebalance;
// Requests that were held and released have been answered: nobody has work.
struct RanksIdle {};
// Which experts a request's tokens have chosen, where RunOptions::routing_log: what one rank has
// seen of it. After the last iteration.
struct RequestCounts {
  int request_index = 0;
  std::vector<int64_t> counts;  // [MoE layers × num_experts]
};
// A rank's last event.
struct RankEnded {
  int rank = 0;
  engine::RunTimes times;
  NodeTraffic traffic;
};
// SIGINT or SIGTERM has come: whoever pulls this lets the ranks stop (RankGroup::stop, end_within).
// Only where GroupOptions ask for it; a second signal ends the ranks at once.
struct StopAsked {
  int signal = 0;
};

using Event = std::variant<WeightsRead, RanksReady, Token, Iteration, ExpertRecording, Rebalance,
                           RanksIdle, RequestCounts, RankEnded, StopAsked>;

// ---- between a rank and that process ----

// What one rank says. Of events that are about all ranks it has its part.
struct RankRecord {  // of Iteration
  engine::IterationRecord record;
};
using RankSaying = std::variant<WeightsRead, RanksReady, Token, RankRecord, ExpertRecording,
                                Rebalance, RanksIdle, RequestCounts, RankEnded>;

// As messages of a transport::Messenger between processes of one build.
std::string encode(const RankSaying& saying);
RankSaying decode(std::string_view message);

}  // namespace wideep::run
