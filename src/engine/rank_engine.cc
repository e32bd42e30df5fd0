// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_engine.h"

#include <algorithm>
#include <chrono>

#include "base/try.h"
#include "engine/handshake.h"

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

Result<std::unique_ptr<online::UpdatePolicy>> make_policy(const RankSetup& setup) {
  const OnlineParts& parts = *setup.online;
  if (parts.make_policy) return parts.make_policy();
  const auto& layers = setup.placement.layers;
  const balance::Placement& any = layers.begin()->second;
  return online::make_update_policy({.plan = {.num_experts = any.num_experts,
                                              .ep_size = any.ep_size,
                                              .num_slots = any.num_slots()},
                                     .num_layers = static_cast<int>(layers.size()),
                                     .top_k = setup.config.routing.top_k},
                                    parts.policy);
}

// With a pool every rank reads a share of all experts, and copies its own from there.
Result<model::ExpertSlots> load_slots(const RankSetup& setup, const weights::WeightLoader& loader,
                                      transport::Endpoint& endpoint, base::ThreadPool& threads) {
  const int rank = endpoint.rank();
  if (setup.online == nullptr) {
    return model::ExpertSlots::load(setup.config, loader, setup.placement, rank);
  }
  weights::HostPool& pool = *setup.online->pool;
  WIDEEP_TRY(
      model::fill_host_pool(setup.config, loader, rank, endpoint.num_ranks(), threads, pool));
  WIDEEP_TRY(wait_for_weights(endpoint));
  return model::ExpertSlots::copy(pool, setup.placement, rank, threads);
}

model::TensorGroup tensor_group(const RankSetup& setup, transport::Endpoint& endpoint) {
  if (!setup.joint) return {};
  return {endpoint, ep::BufferLayout(setup.dispatch).segment_bytes(), *setup.joint};
}

}  // namespace

Result<std::unique_ptr<RankEngine>> RankEngine::start(const RankSetup& setup,
                                                      transport::Endpoint& endpoint,
                                                      const std::function<void(uint64_t)>& on_bytes,
                                                      EngineObserver observer) {
  WIDEEP_TRY(shake_hands(setting_words(setup), endpoint));
  std::unique_ptr<online::UpdatePolicy> policy;
  if (setup.online != nullptr) {
    WIDEEP_TRY_ASSIGN(policy, make_policy(setup));
  }
  auto pool = std::make_unique<base::ThreadPool>(setup.threads.of_rank(endpoint.rank()));
  const weights::WeightLoader loader(setup.tensors, setup.format, on_bytes, pool.get());
  WIDEEP_TRY_ASSIGN(model::ExpertSlots slots, load_slots(setup, loader, endpoint, *pool));
  WIDEEP_TRY(setup.tensors.check_unchanged());
  WIDEEP_TRY(wait_for_weights(endpoint));
  return std::unique_ptr<RankEngine>(new RankEngine(
      setup, std::move(pool), std::move(slots), std::move(policy), endpoint, std::move(observer)));
}

RankEngine::RankEngine(const RankSetup& setup, std::unique_ptr<base::ThreadPool> pool,
                       model::ExpertSlots slots, std::unique_ptr<online::UpdatePolicy> policy,
                       transport::Endpoint& endpoint, EngineObserver observer)
    : pool_(std::move(pool)),
      slots_(std::move(slots)),
      compute_(setup.kernels, *pool_),
      moe_(setup.config, setup.placement, slots_, endpoint, ep::BufferLayout(setup.dispatch),
           setup.moe),
      model_(setup.config, setup.weights, compute_, moe_, tensor_group(setup, endpoint)),
      kv_(setup.config, setup.cache, model_.group().size()),
      policy_(std::move(policy)),
      engine_(setup.config, kv_, setup.limits, model_, moe_, compute_, endpoint,
              start_online(setup, endpoint.rank(), observer.on_rebalance), std::move(observer)) {}

OnlineHooks RankEngine::start_online(const RankSetup& setup, int rank,
                                     std::function<void(const online::Rebalance&)> on_rebalance) {
  if (setup.online == nullptr) return {};
  for (const auto& [layer, placement] : setup.placement.layers) {
    moe_layers_.push_back(layer);
    placements_.push_back(placement);
  }
  const OnlineParts& parts = *setup.online;
  online_.emplace(online::OnlineSetup{.board = *parts.board,
                                      .pool = *parts.pool,
                                      .placement = setup.placement,
                                      .options = parts.balancer,
                                      .policy = *policy_,
                                      .on_rebalance = std::move(on_rebalance),
                                      .on_copy = parts.on_copy},
                  rank);
  return {.rank = &*online_,
          .switch_layer = [this](const online::PublishedLayer& layer) { switch_layer(layer); }};
}

void RankEngine::switch_layer(const online::PublishedLayer& published) {
  const int layer = moe_layers_[published.layer];
  for (online::SlotRecord& slot : published.slots) {
    slot.record = slots_.exchange(layer, slot.local_slot, slot.record);
  }
  balance::Placement& placement = placements_[published.layer];
  placement.slot_to_expert.assign(published.slot_to_expert.begin(), published.slot_to_expert.end());
  moe_.set_placement(layer, placement, published.shares);
}

}  // namespace wideep::engine
