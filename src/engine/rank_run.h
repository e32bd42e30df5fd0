// SPDX-License-Identifier: Apache-2.0
//
// What one rank process does from its start to its end, and what it tells the parent.
#pragma once

#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/online_parts.h"
#include "engine/thread_plan.h"
#include "model/moe.h"
#include "transport/rank_processes.h"
#include "weights/checkpoint.h"

namespace wideep::engine {

// Everything the ranks have in common: made by the parent before it forks.
struct RunSetup {
  const GenerateOptions& options;
  const model::ModelConfig& config;
  const weights::Checkpoint& checkpoint;
  const model::ModelForms& forms;
  const balance::ModelPlacement& placement;
  const kernels::Kernels& kernels;
  const model::ModelWeights& weights;  // all but the experts: loaded before the fork, then shared
  std::vector<Request> requests;
  ep::DispatchShape dispatch;
  model::MoeOptions moe;
  SchedulerLimits limits;
  std::optional<model::JointLayout> joint;  // as RankSetup has it
  ThreadPlan threads;
  const OnlineParts* online = nullptr;       // null: placements never change
  const base::TraceBuffer* trace = nullptr;  // where options.profile goes
};

Status run_rank(const RunSetup& setup, transport::Endpoint& endpoint,
                const transport::MessagePipe& pipe);

// A message from a rank; the first byte is its kind.
enum class MessageKind : uint8_t { kLoaded, kToken, kIteration, kRequestCounts, kRebalance };

struct TokenMessage {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::string digest;  // with the last token
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
};
void read_message(std::string_view message, const MessageHandler& handler);

}  // namespace wideep::engine
