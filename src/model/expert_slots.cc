// SPDX-License-Identifier: Apache-2.0
#include "model/expert_slots.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "base/try.h"

namespace wideep::model {

namespace {

std::string prefix_of(int layer, int expert) {
  return fmt::format("model.layers.{}.mlp.experts.{}", layer, expert);
}

}  // namespace

weights::ExpertShape experts_shape(const ModelConfig& config, const weights::WeightLoader& loader) {
  std::vector<std::string> prefixes;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    if (!config.is_moe_layer[layer]) continue;
    for (int expert = 0; expert < config.routing.num_experts; ++expert) {
      prefixes.push_back(prefix_of(layer, expert));
    }
  }
  return weights::expert_shape(loader, prefixes, config.hidden_size, config.moe_intermediate_size);
}

Result<ExpertSlots> ExpertSlots::load(const ModelConfig& config,
                                      const weights::WeightLoader& loader,
                                      const balance::ModelPlacement& placement, int rank) {
  ExpertSlots slots;
  slots.shape_ = experts_shape(config, loader);
  const size_t record_bytes = slots.shape_.record_bytes();
  size_t num_slots = 0;
  for (const auto& [layer, layer_placement] : placement.layers) {
    slots.first_slots_[layer] = num_slots;
    num_slots += layer_placement.experts_of_rank(rank).size();
  }
  slots.records_ = base::AlignedBytes(num_slots * record_bytes);
  std::byte* record = slots.records_.data();
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(rank)) {
      WIDEEP_TRY(weights::load_expert(loader, slots.shape_, prefix_of(layer, expert), record));
      record += record_bytes;
    }
  }
  loader.run();
  return slots;
}

}  // namespace wideep::model
