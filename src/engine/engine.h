// SPDX-License-Identifier: Apache-2.0
//
// One rank's engine: the loop that turns requests into tokens.
//
//   schedule → agree with all ranks → forward (collective) → sample → tell
//
// What ranks agree on carries the online balancer's news too: placements change here, between two
// iterations, on all ranks at once.
//
// All ranks of a group run the same iterations: a rank without work takes part with an empty batch,
// for its slots are needed by the others. The loop ends when no rank has work, or when one was
// asked to stop, after the same iteration on every rank.
//
// Ranks that compute one batch together (model/tensor_group.h) have the same requests and schedule
// and sample the same; the first of them tells of tokens, each of its own tokens' routing.
//
// Thread safety: one thread per engine.
#pragma once

#include <functional>
#include <span>

#include "engine/iteration_record.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"
#include "model/model.h"
#include "online/online_rank.h"

namespace wideep::engine {

enum class FinishReason : uint8_t { kNotFinished, kStop, kLength };  // an end token; max_tokens

struct TokenEvent {
  int request_index = 0;
  Sampled sampled;
  FinishReason finish_reason = FinishReason::kNotFinished;
  std::span<const float> logits;  // [vocab], that the token was sampled from
};

// The chosen experts of one MoE layer: token t of the batch belongs to request request_of[t].
struct RoutingEvent {
  int layer = 0;
  int64_t iteration = 0;
  std::span<const int32_t> experts;   // [num_tokens, top_k]
  std::span<const int32_t> counts;    // [num_experts]
  std::span<Sequence* const> owners;  // [num_tokens]
};

// Whom the engine tells; each may be empty. Called on the engine's thread. A status that is not ok
// ends the run.
struct EngineObserver {
  std::function<void(int64_t iteration)> on_start;  // of an iteration, before ranks agree on it
  std::function<Status(const TokenEvent&)> on_token;
  std::function<void(const RoutingEvent&)> on_routing;
  std::function<Status(const IterationRecord&)> on_iteration;
  // Of rank 0, on a thread of the balancer's.
  std::function<void(const online::Rebalance&)> on_rebalance;
};

// How placements change under an engine. Without online balancing both are null.
struct OnlineHooks {
  online::OnlineRank* rank = nullptr;
  std::function<void(const online::PublishedLayer&)> switch_layer;
};

class Engine {
 public:
  Engine(const model::ModelConfig& config, const model::KvLayout& kv, const SchedulerLimits& limits,
         model::Model& model, model::MoeRunner& moe, model::Compute compute,
         transport::Endpoint& endpoint, OnlineHooks online, EngineObserver observer);

  // Errors (invalid input): as Scheduler::submit.
  Status submit(Request request) { return scheduler_.submit(std::move(request)); }

  // Runs until no rank of the group has work, or a stop was requested (the group's control page).
  // Collective. Errors: a peer failed or did not answer in time, or an observer's.
  Status run();

 private:
  enum class Next { kContinue, kEnd };
  Result<Next> agree(Scheduler::Step& step);
  Status run_step(const Scheduler::Step& step);
  void record_layer(const model::MoeLayerRecord& layer);
  Status sample_rows(const Scheduler::Step& step);
  FinishReason append(Sequence& sequence, int32_t token) const;
  // Whether this rank tells what all ranks of its group know.
  bool speaks() const { return model_.group().rank() == 0; }
  int64_t busy_cpu_ns() const;

  const model::ModelConfig& config_;
  const model::KvLayout& kv_;
  Scheduler scheduler_;
  model::Model& model_;
  model::Compute compute_;
  transport::Endpoint& endpoint_;
  OnlineHooks online_;
  EngineObserver observer_;

  int64_t iteration_ = 0;  // the same on all ranks
  const Scheduler::Step* current_ = nullptr;
  int moe_layers_done_ = 0;  // of the iteration
  IterationRecord record_;
  int64_t last_mark_cpu_ns_ = 0;  // busy_cpu_ns at the end of the last recorded layer
  std::vector<float> logits_;
  std::vector<Sampled> sampled_;               // of the step's logit rows
  std::vector<transport::AgreedWords> words_;  // of all ranks
};

}  // namespace wideep::engine
