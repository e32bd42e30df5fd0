// SPDX-License-Identifier: Apache-2.0
#include "model/expert_slots.h"

#include <fmt/format.h>

#include <atomic>
#include <vector>

#include "base/content_hash.h"
#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

namespace {

std::vector<int> layers_with_experts(const ModelConfig& config) {
  std::vector<int> layers;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_moe_layer[layer]) layers.push_back(layer);
  }
  return layers;
}

}  // namespace

Status fill_host_pool(const ModelConfig& config, const weights::WeightLoader& loader, int rank,
                      int num_ranks, base::ThreadPool& threads, weights::HostPool& pool) {
  const std::vector<int> layers = layers_with_experts(config);
  const int num_experts = pool.num_experts();
  const auto [begin, end] = pool.share_of(rank, num_ranks);
  WIDEEP_TRY(pool.reserve_share(rank, num_ranks));
  for (int i = begin; i < end; ++i) {
    const int layer = i / num_experts, expert = i % num_experts;
    WIDEEP_TRY(weights::load_expert(loader, pool.shape(), expert_prefix(layers[layer], expert),
                                    pool.record(layer, expert)));
  }
  loader.run();
  threads.parallel_for(end - begin, 1, [&, first = begin](int64_t from, int64_t to) {
    for (int64_t i = first + from; i < first + to; ++i) {
      pool.seal(static_cast<int>(i / num_experts), static_cast<int>(i % num_experts));
    }
  });
  return {};
}

ExpertSlots::ExpertSlots(const weights::ExpertShape& shape,
                         const balance::ModelPlacement& placement, int rank)
    : shape_(shape) {
  size_t num_slots = 0;
  for (const auto& [layer, layer_placement] : placement.layers) {
    first_slots_[layer] = num_slots;
    num_slots += layer_placement.experts_of_rank(rank).size();
  }
  records_ = base::AlignedBytes(num_slots * shape.record_bytes());
  for (size_t slot = 0; slot < num_slots; ++slot) {
    slots_.push_back(records_.data() + slot * shape.record_bytes());
  }
}

Result<ExpertSlots> ExpertSlots::load(const ModelConfig& config,
                                      const weights::WeightLoader& loader,
                                      const balance::ModelPlacement& placement, int rank) {
  ExpertSlots slots(experts_shape(config, loader), placement, rank);
  auto record = slots.slots_.begin();
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(rank)) {
      WIDEEP_TRY(
          weights::load_expert(loader, slots.shape_, expert_prefix(layer, expert), *record++));
    }
  }
  loader.run();
  return slots;
}

Result<ExpertSlots> ExpertSlots::copy(const weights::HostPool& pool,
                                      const balance::ModelPlacement& placement, int rank,
                                      base::ThreadPool& threads) {
  ExpertSlots slots(pool.shape(), placement, rank);
  struct Source {
    int layer;
    int expert;
  };
  std::vector<Source> sources;
  int pool_layer = 0;
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(rank)) {
      sources.push_back({pool_layer, expert});
    }
    ++pool_layer;
  }
  std::atomic<int64_t> wrong{-1};
  threads.parallel_for(static_cast<int64_t>(sources.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto [layer, expert] = sources[i];
      const uint64_t hash = base::copy_and_hash(pool.record(layer, expert), slots.slots_[i],
                                                pool.shape().record_bytes(), [] { return true; });
      if (hash != pool.content_hash(layer, expert)) wrong = i;
    }
  });
  if (wrong < 0) return slots;
  return failed(fmt::format(
      "host pool: expert {} of MoE layer {} is not what was loaded: memory or disk is faulty",
      sources[wrong].expert, sources[wrong].layer));
}

}  // namespace wideep::model
