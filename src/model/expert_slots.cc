// SPDX-License-Identifier: Apache-2.0
#include "model/expert_slots.h"

#include <fmt/format.h>

#include "base/try.h"

namespace wideep::model {

Result<ExpertSlots> ExpertSlots::load(const ModelConfig& config,
                                      const weights::WeightLoader& loader,
                                      const balance::ModelPlacement& placement, int rank) {
  ExpertSlots slots;
  slots.shape_ = {loader.format(), config.hidden_size, config.moe_intermediate_size};
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
      WIDEEP_TRY(weights::load_expert(loader, slots.shape_,
                                      fmt::format("model.layers.{}.mlp.experts.{}", layer, expert),
                                      record));
      record += record_bytes;
    }
  }
  loader.run();
  return slots;
}

}  // namespace wideep::model
