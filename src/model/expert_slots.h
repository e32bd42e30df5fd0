// SPDX-License-Identifier: Apache-2.0
//
// The slots of one rank: for every MoE layer, slots_per_rank experts' weights, each a private copy.
#pragma once

#include <map>

#include "base/aligned_bytes.h"
#include "model/config.h"
#include "weights/expert_record.h"
#include "wideep/placement.h"

namespace wideep::model {

class ExpertSlots {
 public:
  // Reads this rank's experts. Errors: as WeightLoader.
  static Result<ExpertSlots> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                  const balance::ModelPlacement& placement, int rank);

  weights::GatedMlp expert(int layer, int local_slot) const {
    const size_t slot = first_slots_.at(layer) + static_cast<size_t>(local_slot);
    return weights::view_expert(shape_, records_.data() + slot * shape_.record_bytes());
  }
  uint64_t total_bytes() const { return records_.size(); }

 private:
  weights::ExpertShape shape_;
  base::AlignedBytes records_;         // of all layers, slot by slot
  std::map<int, size_t> first_slots_;  // by layer
};

}  // namespace wideep::model
