// SPDX-License-Identifier: Apache-2.0
//
// The slots of one rank: for every MoE layer, slots_per_rank experts' weights, each a private copy.
#pragma once

#include <map>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "weights/expert_record.h"
#include "weights/host_pool.h"
#include "wideep/placement.h"

namespace wideep::model {

// Reads this rank's share of all experts into the host pool; layers of the pool are the model's MoE
// layers. Errors: as WeightLoader; there is not enough memory.
Status fill_host_pool(const ModelConfig& config, const weights::WeightLoader& loader, int rank,
                      int num_ranks, base::ThreadPool& threads, weights::HostPool& pool);

class ExpertSlots {
 public:
  // Reads this rank's experts. Errors: as WeightLoader.
  static Result<ExpertSlots> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                  const balance::ModelPlacement& placement, int rank);

  // Copies them from a pool that all ranks have filled. Errors (failed): a copy that is not what
  // the pool's rank has loaded.
  static Result<ExpertSlots> copy(const weights::HostPool& pool,
                                  const balance::ModelPlacement& placement, int rank,
                                  base::ThreadPool& threads);

  weights::GatedMlp expert(int layer, int local_slot) const {
    return weights::view_expert(shape_, slots_[first_slots_.at(layer) + local_slot]);
  }

  // Puts another record into a slot; returns the one that was there. Not during a forward pass.
  std::byte* exchange(int layer, int local_slot, std::byte* record) {
    return std::exchange(slots_[first_slots_.at(layer) + local_slot], record);
  }

  uint64_t total_bytes() const { return records_.size(); }

 private:
  // Slots with memory, without content.
  ExpertSlots(const weights::ExpertShape& shape, const balance::ModelPlacement& placement,
              int rank);

  weights::ExpertShape shape_;
  base::AlignedBytes records_;         // of all layers, slot by slot, as they begin
  std::vector<std::byte*> slots_;      // of all layers: each slot's record
  std::map<int, size_t> first_slots_;  // by layer: where its slots begin
};

}  // namespace wideep::model
