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
  for (const auto& [layer, layer_placement] : placement.layers) {
    for (const int32_t expert : layer_placement.experts_of_rank(rank)) {
      base::AlignedBytes record(slots.shape_.record_bytes());
      WIDEEP_TRY(weights::load_expert(loader, slots.shape_,
                                      fmt::format("model.layers.{}.mlp.experts.{}", layer, expert),
                                      record.data()));
      slots.layers_[layer].push_back(std::move(record));
    }
  }
  return slots;
}

uint64_t ExpertSlots::total_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [layer, records] : layers_) bytes += records.size() * shape_.record_bytes();
  return bytes;
}

}  // namespace wideep::model
