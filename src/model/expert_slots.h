// SPDX-License-Identifier: Apache-2.0
//
// The slots of one rank: for every MoE layer, slots_per_rank experts' weights, each a private copy.
#pragma once

#include <map>
#include <vector>

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
    return weights::view_expert(shape_, layers_.at(layer)[local_slot].data());
  }
  uint64_t total_bytes() const;

 private:
  weights::ExpertShape shape_;
  std::map<int, std::vector<base::AlignedBytes>> layers_;
};

}  // namespace wideep::model
