// SPDX-License-Identifier: Apache-2.0
//
// run_rank() at the end of this file reads in order: groups of ranks → weights → model → pipeline →
// online balancing → engine → loop. The functions before it build one part each from the plan.
#include "run/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "base/log.h"
#include "base/try.h"
#include "engine/engine.h"
#include "parallel/initial_placement.h"
#include "run/rank_reporter.h"
#include "transport/bridge.h"

namespace wideep::run {
namespace {

using transport::Endpoint;
using transport::Group;

// A barrier with a longer timeout: how long weights take depends on the disk and differs between
// ranks by more than the timeout of an iteration. If a rank fails or dies, the wait still ends at
// once.
Status wait_for_weights(Endpoint& endpoint) {
  constexpr std::chrono::hours kLoadingTimeout{2};
  const std::chrono::milliseconds timeout = endpoint.timeout();
  endpoint.set_timeout(std::max<std::chrono::milliseconds>(timeout, kLoadingTimeout));
  WIDEEP_TRY(endpoint.barrier({.what = "its weights"}));
  endpoint.set_timeout(timeout);
  return {};
}

// The pipeline stage of this rank, and the groups of ranks within it.
struct Stage {
  parallel::LayerRange layers;
  balance::ModelPlacement placement;    // of these layers
  const OnlineParts* online = nullptr;  // null: the stage has no online balancing
  std::unique_ptr<Endpoint> ranks;      // all ranks of the stage
  // With context parallelism: the ranks that differ only in tp, and only in cp.
  std::unique_ptr<Endpoint> tensor_ranks, context_ranks;
  // The ranks that hold slices of the same experts; null: experts are whole.
  std::unique_ptr<Endpoint> shards;
  std::unique_ptr<online::BoardRelay> relay;  // null unless online balancing spans several nodes

  // The ranks that dispatch rows to each other.
  Endpoint& experts() const { return tensor_ranks ? *tensor_ranks : *ranks; }
};

// Slice s of the experts of owner r lies on rank s · owners + r.
std::unique_ptr<Endpoint> shard_ranks(const ep::DispatchShape& dispatch, Endpoint& experts) {
  if (dispatch.num_slices == 1) return nullptr;
  const int owners = dispatch.num_owners();
  std::vector<int> ranks;
  for (int rank = experts.rank() % owners; rank < experts.num_ranks(); rank += owners) {
    ranks.push_back(experts.world_rank(rank));
  }
  return std::make_unique<Endpoint>(experts, Group::kShards, std::move(ranks));
}

Stage stage_of(const Run& run, Endpoint& world) {
  const RunPlan& plan = run.plan();
  const parallel::Mapping& mapping = plan.mapping;
  const int index = mapping.coordinates(world.rank()).pp_rank;
  Stage stage{.layers = plan.layers_of(world.rank())};
  stage.placement = parallel::placement_of_layers(plan.model.placement, stage.layers);
  stage.ranks = std::make_unique<Endpoint>(world, Group::kStage, mapping.stage(world.rank()));
  if (mapping.sizes().cp > 1) {
    stage.tensor_ranks = std::make_unique<Endpoint>(
        world, Group::kExperts, mapping.group(parallel::Axis::kTp, world.rank()));
    stage.context_ranks = std::make_unique<Endpoint>(
        world, Group::kContext, mapping.group(parallel::Axis::kCp, world.rank()));
  }
  stage.shards = shard_ranks(plan.dispatch, stage.experts());
  if (!plan.balances_online() || stage.placement.layers.empty()) return stage;
  stage.online = &run.online()[static_cast<size_t>(index)];
  if (world.bridge() != nullptr) {
    stage.relay =
        std::make_unique<online::BoardRelay>(*world.bridge(), *stage.online->board, index,
                                             mapping.stage(world.rank()), stage.ranks->rank());
  }
  return stage;
}

// With several nodes, each node has a copy of the update boards of all stages. The bridge passes
// changes made on other nodes to this callback, which writes them into the copy. The boards outlive
// the bridge.
void follow_boards(const Run& run, Endpoint& world) {
  if (run.online().empty() || world.bridge() == nullptr) return;
  std::vector<online::UpdateBoard*> boards;
  for (const OnlineParts& stage : run.online()) boards.push_back(stage.board.get());
  world.bridge()->set_on_notice([boards = std::move(boards)](std::span<const std::byte> notice) {
    online::apply_notice(notice, boards);
  });
}

// ---- weights ----

// Without online balancing each rank reads its own experts. With it, the ranks of a node together
// read all experts of the stage into the host pool, each a share; then each copies its own slots
// from the pool. The wait between the two ensures that the pool is complete.
Result<model::ExpertSlots> load_slots(const RunPlan& plan, const Stage& stage,
                                      const weights::WeightLoader& loader,
                                      base::ThreadPool& threads) {
  const int rank = stage.experts().rank(), owners = plan.dispatch.num_owners();
  const model::SlotOwner owner(rank % owners, rank / owners, plan.dispatch.num_slices);
  if (stage.online == nullptr) {
    return model::ExpertSlots::load(plan.model.config, loader, stage.placement, owner);
  }
  weights::HostPool& pool = *stage.online->pool;
  std::vector<int> layers;
  for (const auto& [layer, placement] : stage.placement.layers) layers.push_back(layer);
  WIDEEP_TRY(model::fill_host_pool(layers, loader, stage.ranks->index_on_node(),
                                   stage.ranks->ranks_on_node(), threads, pool));
  WIDEEP_TRY(wait_for_weights(*stage.ranks));
  return model::ExpertSlots::copy(pool, stage.placement, owner, threads);
}

// ---- the parts of an engine ----

Result<std::unique_ptr<online::UpdatePolicy>> make_policy(const RunPlan& plan, const Stage& stage) {
  if (stage.online == nullptr) return std::unique_ptr<online::UpdatePolicy>();
  if (stage.online->make_policy) return stage.online->make_policy();
  const auto& layers = stage.placement.layers;
  const balance::Placement& any = layers.begin()->second;
  return online::make_update_policy({.plan = {.num_experts = any.num_experts,
                                              .ep_size = any.ep_size,
                                              .num_slots = any.num_slots()},
                                     .num_layers = static_cast<int>(layers.size()),
                                     .top_k = plan.model.config.routing.top_k},
                                    stage.online->plan.policy);
}

model::TensorGroup tensor_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.joint) return {};
  return {stage.experts(), plan.segment.joint_offset(), *plan.joint};
}

model::TensorGroup context_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.context) return {};
  return {*stage.context_ranks, plan.segment.logits_offset(), *plan.context};
}

model::TensorGroup shard_group(const RunPlan& plan, const Stage& stage) {
  if (!plan.shards) return {};
  return {*stage.shards, plan.segment.shards_offset(), *plan.shards};
}

model::SharedHead shared_head(const RunPlan& plan, const Stage& stage) {
  if (!plan.heads || stage.layers.last != plan.model.config.num_all_layers()) return {};
  return {.ranks = {stage.experts(), plan.segment.heads_offset(), *plan.heads},
          .max_size = plan.shared_head_ranks};
}

engine::ContextPlace context_place(const RunPlan& plan, const Stage& stage) {
  if (!plan.context) return {};
  const Endpoint& ranks = *stage.context_ranks;
  engine::ContextPlace place{.rank = ranks.rank(), .size = ranks.num_ranks()};
  for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
    place.caches.push_back(ranks.segment(rank) + plan.segment.cache_offset());
  }
  return place;
}

// What this rank has sent to other nodes since the start.
NodeTraffic traffic_of(const model::MoeRunner& moe, const Endpoint& world) {
  NodeTraffic traffic;
  if (const ep::NodeCrossing* crossing = moe.crossing()) {
    traffic.dispatched_rows = crossing->token_nodes();
    traffic.returned_rows = crossing->returned_rows();
  }
  if (const transport::Bridge* bridge = world.bridge()) {
    const auto sent = [&](transport::Traffic kind) {
      return static_cast<int64_t>(bridge->sent_bytes(kind));
    };
    traffic.dispatched_bytes = sent(transport::Traffic::kRows);
    traffic.returned_bytes = sent(transport::Traffic::kResults);
    traffic.other_bytes = sent(transport::Traffic::kOther);
  }
  return traffic;
}

}  // namespace

Status run_rank(const Run& run, int feed_fd, Endpoint& world,
                const transport::Messenger& messenger) {
  const RunPlan& plan = run.plan();
  const model::ModelConfig& config = plan.model.config;
  log::set_prefix(fmt::format("rank {}: ", world.rank()));
  RankReporter reporter(run, world.rank(), messenger);

  // Groups of ranks, then weights, which are loaded by the threads that will compute.
  follow_boards(run, world);
  const Stage stage = stage_of(run, world);
  WIDEEP_TRY_ASSIGN(const auto policy, make_policy(plan, stage));
  base::ThreadPool pool(plan.threads.of_rank(world.index_on_node()));
  const weights::WeightLoader loader(
      run.inputs().tensors(), run.options().format,
      [&](uint64_t bytes) { reporter.weights_read(bytes); }, &pool);
  WIDEEP_TRY_ASSIGN(model::ExpertSlots slots, load_slots(plan, stage, loader, pool));
  WIDEEP_TRY(run.inputs().tensors().check_unchanged());
  WIDEEP_TRY(wait_for_weights(world));

  // The model, over the layers of this stage.
  const model::Compute compute(*run.inputs().kernels, pool);
  model::MoeRunner moe(config, stage.placement, slots, stage.experts(),
                       ep::BufferLayout(plan.dispatch), plan.moe, shard_group(plan, stage));
  model::Model model(config, run.weights(), compute, moe, stage.layers, tensor_group(plan, stage),
                     context_group(plan, stage), shared_head(plan, stage));
  const model::KvLayout kv(config, plan.cache, stage.layers, model.group().size());
  const model::StateLayout states(config, stage.layers);
  engine::Pipeline pipeline(world, plan.mapping.group(parallel::Axis::kPp, world.rank()),
                            plan.pipeline, plan.segment.pipeline_offset());
  std::optional<engine::OnlineLayers> online;
  if (stage.online != nullptr) {
    online.emplace(
        online::OnlineSetup{
            .board = *stage.online->board,
            .pool = *stage.online->pool,
            .placement = stage.placement,
            .options = stage.online->plan.balancer,
            .policy = *policy,
            .on_rebalance = [&](const online::Rebalance& each) { reporter.rebalanced(each); },
            .on_copy = stage.online->on_copy,
            .relay = stage.relay.get()},
        stage.ranks->rank(), slots, moe);
  }

  // The loop. Ranks of a joint group compute all requests; otherwise each tp rank owns some.
  const int tp = plan.mapping.sizes().tp;
  engine::RequestFeed feed(feed_fd, plan.joint ? std::nullopt : std::optional(world.rank() % tp),
                           world.bridge());
  engine::Engine engine(
      {.config = config,
       .limits = plan.limits,
       .speculation = plan.speculation,
       .model = model,
       .kv = kv,
       .states = states,
       .moe = moe,
       .compute = compute,
       .stage = *stage.ranks,
       .dispatch_ranks = {plan.mapping.coordinates(world.rank()).cp_rank * tp, tp},
       .context_place = context_place(plan, stage),
       .pipeline = pipeline,
       .online = online ? &*online : nullptr,
       .feed = feed,
       .reporter = reporter});
  WIDEEP_TRY(reporter.ready());
  const Status ended = engine.run();
  return reporter.finish(ended, engine.times(), traffic_of(moe, world));
}

}  // namespace wideep::run
