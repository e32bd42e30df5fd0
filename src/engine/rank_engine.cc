// SPDX-License-Identifier: Apache-2.0
#include "engine/rank_engine.h"

#include <algorithm>
#include <chrono>

#include "base/try.h"

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

}  // namespace

Result<std::unique_ptr<RankEngine>> RankEngine::start(const RankSetup& setup,
                                                      transport::Endpoint& endpoint,
                                                      const std::function<void(uint64_t)>& on_bytes,
                                                      EngineObserver observer) {
  auto pool = std::make_unique<base::ThreadPool>(setup.threads.of_rank(endpoint.rank()));
  const weights::WeightLoader loader(setup.tensors, setup.format, on_bytes, pool.get());
  WIDEEP_TRY_ASSIGN(
      model::ExpertSlots slots,
      model::ExpertSlots::load(setup.config, loader, setup.placement, endpoint.rank()));
  WIDEEP_TRY(wait_for_weights(endpoint));
  return std::unique_ptr<RankEngine>(
      new RankEngine(setup, std::move(pool), std::move(slots), endpoint, std::move(observer)));
}

RankEngine::RankEngine(const RankSetup& setup, std::unique_ptr<base::ThreadPool> pool,
                       model::ExpertSlots slots, transport::Endpoint& endpoint,
                       EngineObserver observer)
    : pool_(std::move(pool)),
      slots_(std::move(slots)),
      compute_(setup.kernels, *pool_),
      moe_(setup.config, setup.placement, slots_, endpoint, ep::BufferLayout(setup.dispatch)),
      model_(setup.config, setup.weights, compute_, moe_),
      kv_(setup.config, setup.cache),
      engine_(setup.config, kv_, setup.limits, model_, moe_, compute_, endpoint,
              std::move(observer)) {}

}  // namespace wideep::engine
