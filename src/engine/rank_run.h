// SPDX-License-Identifier: Apache-2.0
//
// What one rank process does from its start to its end, and what it tells the process that shows
// results: the parent, or, where a launcher has started the ranks, rank 0.
#pragma once

#include <string>
#include <vector>

#include "engine/run_setup.h"
#include "transport/messenger.h"

namespace wideep::engine {

RankSetup rank_setup(const RunSetup& setup);

// A rank's file of expert statistics, and how many pipeline stages have such: those with MoE
// layers.
struct StatisticsPart {
  int file = 0;
  int num_stages = 0;
};
StatisticsPart statistics_part(const RunSetup& setup, int rank);

Status run_rank(const RunSetup& setup, transport::Endpoint& endpoint,
                const transport::Messenger& parent);

// A message from a rank; the first byte is its kind.
enum class MessageKind : uint8_t {
  kLoaded,
  kTokens,  // of an iteration, whose kIteration follows
  kIteration,
  kRequestCounts,
  kRebalance,
  kTimes,
  kReady,         // the rank has its weights, and begins
  kRecordExperts  // whether the iterations told from here on have counts of experts
};

struct TokenMessage {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  int cached_tokens = 0;  // of the prompt, that were taken over from others
  std::string digest;     // with the last token
  std::vector<Sampled> likely;
};

struct RequestCountsMessage {
  int request_index = 0;
  std::vector<int64_t> counts;  // [MoE layers × num_experts]
};

// Whom read_message hands the decoded message to.
struct MessageHandler {
  std::function<void(uint64_t bytes)> on_loaded;
  std::function<void(const TokenMessage&)> on_token;
  std::function<void(IterationRecord)> on_iteration;
  std::function<void(const RequestCountsMessage&)> on_request_counts;
  std::function<void(const online::Rebalance&)> on_rebalance;
  // A rank's last message.
  std::function<void(const RunTimes&, const NodeTraffic&)> on_times;
  std::function<void()> on_ready;
  std::function<void(bool records)> on_record_experts;
};
void read_message(std::string_view message, const MessageHandler& handler);

}  // namespace wideep::engine
