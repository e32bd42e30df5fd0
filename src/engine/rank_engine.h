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
#include "engine/pipeline.h"
#include "engine/thread_plan.h"
#include "model/model.h"
#include "online/online_rank.h"
#include "parallel/mapping.h"

namespace wideep::engine {

// What the ranks have in common: made by the parent before it forks, outlives them.
struct RankSetup {
  const model::ModelConfig& config;
  const weights::TensorSource& tensors;
  const balance::ModelPlacement& placement;  // of all layers
  const kernels::Kernels& kernels;
  const model::ModelWeights& weights;  // all but the experts: loaded before the fork, then shared
  // Of matrices; nothing: as they are stored.
  std::optional<kernels::WeightFormat> format;
  Dtype cache = Dtype::kBf16;  // of keys and values
  ep::DispatchShape dispatch;
  model::MoeOptions moe;
  SchedulerLimits limits;
  parallel::Mapping mapping;
  // A segment: buffers of dispatch, then what ranks need that compute all batches together (tensor
  // parallelism; nothing: every rank has batches of its own), then those of the pipeline.
  std::optional<model::JointLayout> joint;
  PipelineLayout pipeline = {};
  ThreadPlan threads;
  std::span<const OnlineParts> online = {};  // of each stage; empty: placements never change
};

// Of one rank.
size_t segment_bytes(const RankSetup& setup);

class RankEngine {
 public:
  // Loads this rank's experts and waits until all ranks have theirs. Collective. endpoint: of all
  // ranks; outlives the engine. on_bytes: told the tensors' bytes read, as they are.
  // Errors: as weights::WeightLoader; ranks that were told different things; a peer failed.
  static Result<std::unique_ptr<RankEngine>> start(const RankSetup& setup,
                                                   transport::Endpoint& endpoint,
                                                   const std::function<void(uint64_t)>& on_bytes,
                                                   EngineObserver observer);

  Engine& engine() { return engine_; }
  // Of this rank since the start.
  NodeTraffic traffic() const;

 private:
  // What this rank's pipeline stage has in common.
  struct Stage {
    parallel::LayerRange layers;
    balance::ModelPlacement placement;  // of these layers
    const OnlineParts* online = nullptr;
    std::unique_ptr<transport::Endpoint> ranks;
    std::unique_ptr<online::BoardRelay> relay;  // where online balancing spans several nodes
    // Where several ranks share sequences: those that differ in tp only, and in cp only.
    std::unique_ptr<transport::Endpoint> tensor_ranks, context_ranks;

    // Between which dispatch takes rows.
    transport::Endpoint& experts() const { return tensor_ranks ? *tensor_ranks : *ranks; }
  };
  static Stage stage_of(const RankSetup& setup, transport::Endpoint& world);
  static Result<std::unique_ptr<online::UpdatePolicy>> make_policy(const RankSetup& setup,
                                                                   const Stage& stage);
  static Result<model::ExpertSlots> load_slots(const RankSetup& setup, const Stage& stage,
                                               const weights::WeightLoader& loader,
                                               base::ThreadPool& threads);
  static model::TensorGroup tensor_group(const RankSetup& setup, const Stage& stage);
  static model::TensorGroup context_group(const RankSetup& setup, const Stage& stage);
  static ContextPlace context_place(const RankSetup& setup, const Stage& stage);

  static std::unique_ptr<transport::Endpoint> shards_endpoint(const RankSetup& setup,
                                                              const Stage& stage);
  static model::TensorGroup shard_group(const RankSetup& setup, transport::Endpoint* shards);

  RankEngine(const RankSetup& setup, Stage stage, std::unique_ptr<base::ThreadPool> pool,
             model::ExpertSlots slots, std::unique_ptr<online::UpdatePolicy> policy,
             transport::Endpoint& world, EngineObserver observer);
  OnlineHooks start_online(std::function<void(const online::Rebalance&)> on_rebalance);
  void switch_layer(const online::PublishedLayer& published);

  // In the order of construction: each uses those before it.
  transport::Endpoint& world_;
  Stage stage_;
  Pipeline pipeline_;
  std::unique_ptr<base::ThreadPool> pool_;  // loads too
  model::ExpertSlots slots_;
  model::Compute compute_;
  std::unique_ptr<transport::Endpoint> shards_;  // null: experts are whole
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
