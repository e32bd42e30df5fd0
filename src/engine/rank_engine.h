// SPDX-License-Identifier: Apache-2.0
//
// All that one rank of a group needs to run a model: its slots, threads, working memory and the
// engine over them. Which requests it gets and who is told of them is the caller's.
//
// Thread safety: one thread; it is also one of the rank's computing threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/engine.h"
#include "engine/online_parts.h"
#include "engine/thread_plan.h"
#include "model/model.h"
#include "online/online_rank.h"
#include "parallel/initial_placement.h"

namespace wideep::engine {

// What the ranks have in common: made by the parent before it forks, outlives them.
struct RankSetup {
  const model::ModelConfig& config;
  const weights::TensorSource& tensors;
  const balance::ModelPlacement& placement;
  const kernels::Kernels& kernels;
  const model::ModelWeights& weights;  // all but the experts: loaded before the fork, then shared
  // Of matrices; nothing: as they are stored.
  std::optional<kernels::WeightFormat> format;
  Dtype cache = Dtype::kBf16;  // of keys and values
  ep::DispatchShape dispatch;
  model::MoeOptions moe;
  SchedulerLimits limits;
  // What ranks need that compute all batches together (tensor parallelism), behind the segment of
  // dispatch; nothing: every rank has batches of its own.
  std::optional<model::JointLayout> joint;
  ThreadPlan threads;
  const OnlineParts* online = nullptr;  // null: placements never change
};

class RankEngine {
 public:
  // Loads this rank's experts and waits until all ranks have theirs. Collective. on_bytes: told
  // the tensors' bytes read, as they are.
  // Errors: as weights::WeightLoader; ranks that were told different things; a peer failed.
  static Result<std::unique_ptr<RankEngine>> start(const RankSetup& setup,
                                                   transport::Endpoint& endpoint,
                                                   const std::function<void(uint64_t)>& on_bytes,
                                                   EngineObserver observer);

  Engine& engine() { return engine_; }

 private:
  RankEngine(const RankSetup& setup, std::unique_ptr<base::ThreadPool> pool,
             model::ExpertSlots slots, std::unique_ptr<online::UpdatePolicy> policy,
             transport::Endpoint& endpoint, EngineObserver observer);
  OnlineHooks start_online(const RankSetup& setup, int rank,
                           std::function<void(const online::Rebalance&)> on_rebalance);
  void switch_layer(const online::PublishedLayer& published);

  // In the order of construction: each uses those before it.
  std::unique_ptr<base::ThreadPool> pool_;  // loads too
  model::ExpertSlots slots_;
  model::Compute compute_;
  model::MoeRunner moe_;
  model::Model model_;
  model::KvLayout kv_;
  std::vector<int> moe_layers_;
  std::vector<balance::Placement> placements_;  // of moe_layers_, as they are now
  std::unique_ptr<online::UpdatePolicy> policy_;
  std::optional<online::OnlineRank> online_;  // ends before what it works on
  Engine engine_;
};

}  // namespace wideep::engine
