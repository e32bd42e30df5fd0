// SPDX-License-Identifier: Apache-2.0
#include "model/expert_slots.h"

#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "base/content_hash.h"
#include "base/numa.h"
#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

Status fill_host_pool(std::span<const int> layers, const weights::WeightLoader& loader, int rank,
                      int num_ranks, base::ThreadPool& threads, weights::HostPool& pool) {
  const auto [begin, end] = pool.share_of(rank, num_ranks);
  WIDEEP_TRY(pool.reserve_share(rank, num_ranks));
  for (int i = begin; i < end; ++i) {
    const weights::HostPool::Address at = pool.address(i);
    WIDEEP_TRY(weights::load_expert(loader, pool.shape(),
                                    expert_prefix(layers[at.layer], at.expert), pool.record(at),
                                    at.slice));
  }
  WIDEEP_TRY(loader.run());
  // Sealing stores a hash of the contents, against which every later copy is checked.
  threads.parallel_for(end - begin, 1, [&, first = begin](int64_t from, int64_t to) {
    for (int64_t i = first + from; i < first + to; ++i) {
      pool.seal(pool.address(static_cast<int>(i)));
    }
  });
  return {};
}

ExpertSlots::ExpertSlots(const weights::ExpertShape& shape,
                         const balance::ModelPlacement& placement, const SlotOwner& owner)
    : shape_(shape), slice_(owner.slice) {
  size_t num_slots = 0;
  for (const auto& [layer, layer_placement] : placement.layers) {
    first_slots_[layer] = num_slots;
    num_slots += layer_placement.experts_of_rank(owner.ep_rank).size();
  }
  records_ = base::AlignedBytes(num_slots * shape.record_bytes());
  // NUMA: only this rank reads the slots.
  base::keep_near_this_thread(records_.data(), records_.size());
  for (size_t slot = 0; slot < num_slots; ++slot) {
    slots_.push_back(records_.data() + slot * shape.record_bytes());
  }
}

Result<ExpertSlots> ExpertSlots::load(const ModelConfig& config,
                                      const weights::WeightLoader& loader,
                                      const balance::ModelPlacement& placement,
                                      const SlotOwner& owner) {
  ExpertSlots slots(experts_shape(config, loader, owner.num_slices), placement, owner);
  auto record = slots.slots_.begin();
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(owner.ep_rank)) {
      WIDEEP_TRY(weights::load_expert(loader, slots.shape_, expert_prefix(layer, expert), *record++,
                                      owner.slice));
    }
  }
  WIDEEP_TRY(loader.run());
  return slots;
}

Result<ExpertSlots> ExpertSlots::copy(const weights::HostPool& pool,
                                      const balance::ModelPlacement& placement,
                                      const SlotOwner& owner, base::ThreadPool& threads) {
  ExpertSlots slots(pool.shape(), placement, owner);
  std::vector<weights::HostPool::Address> sources;
  int pool_layer = 0;
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(owner.ep_rank)) {
      sources.push_back({pool_layer, expert, owner.slice});
    }
    ++pool_layer;
  }
  std::atomic<int64_t> wrong{-1};
  threads.parallel_for(static_cast<int64_t>(sources.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t hash = base::copy_and_hash(pool.record(sources[i]), slots.slots_[i],
                                                pool.shape().record_bytes(), [] { return true; });
      // The copy is hashed on the way, which finds faulty memory or a faulty disk.
      if (hash != pool.content_hash(sources[i])) wrong = i;
    }
  });
  if (wrong < 0) return slots;
  return failed(fmt::format(
      "host pool: expert {} of MoE layer {} differs from what was loaded: memory or disk is faulty",
      sources[wrong].expert, sources[wrong].layer));
}

}  // namespace wideep::model
