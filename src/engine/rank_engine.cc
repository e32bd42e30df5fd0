// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_engine.h"

#include <algorithm>
#include <chrono>

#include "base/trace.h"
#include "base/try.h"
#include "engine/handshake.h"
#include "parallel/initial_placement.h"
#include "transport/bridge.h"

namespace wideep::engine {
namespace {

// Reading weights takes as long as the disk takes, and on some ranks longer than on others: more
// than an iteration may. A rank that fails or dies still ends this wait at once.
Status wait_for_weights(transport::Endpoint& endpoint) {
  constexpr std::chrono::hours kLoadingTimeout{2};
  const std::chrono::milliseconds timeout = endpoint.timeout();
  endpoint.set_timeout(std::max<std::chrono::milliseconds>(timeout, kLoadingTimeout));
  WIDEEP_TRY(endpoint.meet({.what = "its weights"}));
  endpoint.set_timeout(timeout);
  return {};
}

model::JointLayout context_layout(const RankSetup& setup) {
  return model::JointLayout::of_context(setup.config, setup.limits.max_batch_size);
}

// As a deputy this rank keeps the boards of its node for ranks of others, of whatever stage: until
// the bridge ends, which the boards outlive.
void follow_boards(const RankSetup& setup, transport::Endpoint& world) {
  if (setup.online.empty() || world.bridge() == nullptr) return;
  std::vector<online::UpdateBoard*> boards;
  for (const OnlineParts& stage : setup.online) boards.push_back(stage.board.get());
  world.bridge()->set_on_notice([boards = std::move(boards)](std::span<const std::byte> notice) {
    online::take_in(notice, boards);
  });
}

SegmentPlan segment_plan(const RankSetup& setup) {
  SegmentPlan plan(setup.dispatch, setup.joint,
                   shard_layout(setup.config, setup.dispatch, setup.moe.row_dtype), setup.pipeline);
  if (setup.mapping.sizes().cp == 1) return plan;
  // The first stage has the most layers.
  const model::KvLayout kv(setup.config, setup.cache,
                           setup.mapping.pp_layers(0, setup.config.num_layers),
                           setup.joint ? setup.mapping.sizes().tp : 1);
  plan.logits = context_layout(setup).bytes();
  plan.cache = kv.page_bytes() * static_cast<size_t>(setup.limits.max_pages);
  return plan;
}

}  // namespace

size_t segment_bytes(const RankSetup& setup) { return segment_plan(setup).bytes(); }

RankEngine::Stage RankEngine::stage_of(const RankSetup& setup, transport::Endpoint& world) {
  const int index = setup.mapping.coordinates(world.rank()).pp_rank;
  Stage stage{.layers = setup.mapping.pp_layers(index, setup.config.num_layers)};
  stage.placement = parallel::placement_of_layers(setup.placement, stage.layers);
  const bool online = !setup.online.empty() && !stage.placement.layers.empty();
  if (online) stage.online = &setup.online[static_cast<size_t>(index)];
  stage.ranks = std::make_unique<transport::Endpoint>(world, transport::Group::kStage,
                                                      setup.mapping.stage(world.rank()));
  if (online && world.bridge() != nullptr) {
    stage.relay = std::make_unique<online::BoardRelay>(*world.bridge(), *stage.online->board, index,
                                                       setup.mapping.stage(world.rank()),
                                                       stage.ranks->rank());
  }
  if (setup.mapping.sizes().cp > 1) {
    stage.tensor_ranks = std::make_unique<transport::Endpoint>(
        world, transport::Group::kExperts, setup.mapping.group(parallel::Axis::kTp, world.rank()));
    stage.context_ranks = std::make_unique<transport::Endpoint>(
        world, transport::Group::kContext, setup.mapping.group(parallel::Axis::kCp, world.rank()));
  }
  return stage;
}

model::TensorGroup RankEngine::context_group(const RankSetup& setup, const Stage& stage) {
  if (stage.context_ranks == nullptr) return {};
  return {*stage.context_ranks, segment_plan(setup).logits_offset(), context_layout(setup)};
}

ContextPlace RankEngine::context_place(const RankSetup& setup, const Stage& stage) {
  if (stage.context_ranks == nullptr) return {};
  const transport::Endpoint& ranks = *stage.context_ranks;
  ContextPlace place{.rank = ranks.rank(), .size = ranks.num_ranks()};
  for (int rank = 0; rank < ranks.num_ranks(); ++rank) {
    place.caches.push_back(ranks.segment(rank) + segment_plan(setup).cache_offset());
  }
  return place;
}

Result<std::unique_ptr<online::UpdatePolicy>> RankEngine::make_policy(const RankSetup& setup,
                                                                      const Stage& stage) {
  if (stage.online == nullptr) return std::unique_ptr<online::UpdatePolicy>();
  if (stage.online->make_policy) return stage.online->make_policy();
  const auto& layers = stage.placement.layers;
  const balance::Placement& any = layers.begin()->second;
  return online::make_update_policy({.plan = {.num_experts = any.num_experts,
                                              .ep_size = any.ep_size,
                                              .num_slots = any.num_slots()},
                                     .num_layers = static_cast<int>(layers.size()),
                                     .top_k = setup.config.routing.top_k},
                                    stage.online->policy);
}

// With a pool every rank reads a share of the stage's experts, and copies its own from there.
Result<model::ExpertSlots> RankEngine::load_slots(const RankSetup& setup, const Stage& stage,
                                                  const weights::WeightLoader& loader,
                                                  base::ThreadPool& threads) {
  const int rank = stage.experts().rank(), owners = setup.dispatch.num_owners();
  const model::SlotOwner owner(rank % owners, rank / owners, setup.dispatch.num_slices);
  if (stage.online == nullptr) {
    return model::ExpertSlots::load(setup.config, loader, stage.placement, owner);
  }
  weights::HostPool& pool = *stage.online->pool;
  std::vector<int> layers;
  for (const auto& [layer, placement] : stage.placement.layers) layers.push_back(layer);
  WIDEEP_TRY(model::fill_host_pool(layers, loader, stage.ranks->place_on_node(),
                                   stage.ranks->ranks_on_node(), threads, pool));
  WIDEEP_TRY(wait_for_weights(*stage.ranks));
  return model::ExpertSlots::copy(pool, stage.placement, owner, threads);
}

model::TensorGroup RankEngine::tensor_group(const RankSetup& setup, const Stage& stage) {
  if (!setup.joint) return {};
  return {stage.experts(), segment_plan(setup).joint_offset(), *setup.joint};
}

// Between the ranks of the stage that have slices of the same experts.
std::unique_ptr<transport::Endpoint> RankEngine::shards_endpoint(const RankSetup& setup,
                                                                 const Stage& stage) {
  if (setup.dispatch.num_slices == 1) return nullptr;
  const int owners = setup.dispatch.num_owners();
  std::vector<int> ranks;
  transport::Endpoint& all = stage.experts();
  for (int rank = all.rank() % owners; rank < all.num_ranks(); rank += owners) {
    ranks.push_back(all.world_rank(rank));
  }
  return std::make_unique<transport::Endpoint>(all, transport::Group::kShards, std::move(ranks));
}

model::TensorGroup RankEngine::shard_group(const RankSetup& setup, transport::Endpoint* shards) {
  if (shards == nullptr) return {};
  return {*shards, segment_plan(setup).shards_offset(),
          *shard_layout(setup.config, setup.dispatch, setup.moe.row_dtype)};
}

Result<std::unique_ptr<RankEngine>> RankEngine::start(const RankSetup& setup,
                                                      transport::Endpoint& endpoint,
                                                      const std::function<void(uint64_t)>& on_bytes,
                                                      EngineObserver observer) {
  WIDEEP_TRY(shake_hands(setting_words(setup), endpoint));
  follow_boards(setup, endpoint);
  Stage stage = stage_of(setup, endpoint);
  WIDEEP_TRY_ASSIGN(std::unique_ptr<online::UpdatePolicy> policy, make_policy(setup, stage));
  auto pool = std::make_unique<base::ThreadPool>(setup.threads.of_rank(endpoint.place_on_node()));
  const weights::WeightLoader loader(setup.tensors, setup.format, on_bytes, pool.get());
  WIDEEP_TRY_ASSIGN(model::ExpertSlots slots, load_slots(setup, stage, loader, *pool));
  WIDEEP_TRY(setup.tensors.check_unchanged());
  WIDEEP_TRY(wait_for_weights(endpoint));
  return std::unique_ptr<RankEngine>(new RankEngine(setup, std::move(stage), std::move(pool),
                                                    std::move(slots), std::move(policy), endpoint,
                                                    std::move(observer)));
}

RankEngine::RankEngine(const RankSetup& setup, Stage stage, std::unique_ptr<base::ThreadPool> pool,
                       model::ExpertSlots slots, std::unique_ptr<online::UpdatePolicy> policy,
                       transport::Endpoint& world, EngineObserver observer)
    : world_(world),
      stage_(std::move(stage)),
      pipeline_(world, setup.mapping.group(parallel::Axis::kPp, world.rank()), setup.pipeline,
                segment_plan(setup).pipeline_offset()),
      pool_(std::move(pool)),
      slots_(std::move(slots)),
      compute_(setup.kernels, *pool_),
      shards_(shards_endpoint(setup, stage_)),
      moe_(setup.config, stage_.placement, slots_, stage_.experts(),
           ep::BufferLayout(setup.dispatch), setup.moe, shard_group(setup, shards_.get())),
      model_(setup.config, setup.weights, compute_, moe_, stage_.layers,
             tensor_group(setup, stage_), context_group(setup, stage_)),
      kv_(setup.config, setup.cache, stage_.layers, model_.group().size()),
      policy_(std::move(policy)),
      engine_(setup.config, kv_, setup.limits, model_, moe_, compute_, *stage_.ranks,
              {setup.mapping.coordinates(world.rank()).cp_rank * setup.mapping.sizes().tp,
               setup.mapping.sizes().tp},
              context_place(setup, stage_), pipeline_, start_online(observer.on_rebalance),
              // Not moved: in which order arguments are made is the compiler's choice.
              observer) {}

NodeTraffic RankEngine::traffic() const {
  NodeTraffic traffic;
  if (const ep::NodeCrossing* crossing = moe_.crossing()) {
    traffic.dispatched_rows = crossing->token_nodes();
    traffic.returned_rows = crossing->returned_rows();
  }
  if (const transport::Bridge* bridge = world_.bridge()) {
    const auto sent = [&](transport::Traffic kind) {
      return static_cast<int64_t>(bridge->sent_bytes(kind));
    };
    traffic.dispatched_bytes = sent(transport::Traffic::kRows);
    traffic.returned_bytes = sent(transport::Traffic::kResults);
    traffic.other_bytes = sent(transport::Traffic::kOther);
  }
  return traffic;
}

OnlineHooks RankEngine::start_online(std::function<void(const online::Rebalance&)> on_rebalance) {
  if (stage_.online == nullptr) return {};
  for (const auto& [layer, placement] : stage_.placement.layers) {
    moe_layers_.push_back(layer);
    placements_.push_back(placement);
  }
  const OnlineParts& parts = *stage_.online;
  online_.emplace(online::OnlineSetup{.board = *parts.board,
                                      .pool = *parts.pool,
                                      .placement = stage_.placement,
                                      .options = parts.balancer,
                                      .policy = *policy_,
                                      .on_rebalance = std::move(on_rebalance),
                                      .on_copy = parts.on_copy,
                                      .relay = stage_.relay.get()},
                  stage_.ranks->rank());
  return {.rank = &*online_,
          .switch_layer = [this](const online::PublishedLayer& layer) { switch_layer(layer); }};
}

void RankEngine::switch_layer(const online::PublishedLayer& published) {
  const int layer = moe_layers_[published.layer];
  const base::TraceSpan span(base::Span::kSwitchLayer, layer);
  for (online::SlotRecord& slot : published.slots) {
    slot.record = slots_.exchange(layer, slot.local_slot, slot.record);
  }
  balance::Placement& placement = placements_[published.layer];
  placement.slot_to_expert.assign(published.slot_to_expert.begin(), published.slot_to_expert.end());
  moe_.set_placement(layer, placement, published.shares);
}

}  // namespace wideep::engine
