// SPDX-License-Identifier: Apache-2.0
#include "model/expert_slots.h"

#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

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
      WIDEEP_TRY(weights::load_expert(loader, slots.shape_, expert_prefix(layer, expert), record));
      record += record_bytes;
    }
  }
  loader.run();
  return slots;
}

}  // namespace wideep::model
