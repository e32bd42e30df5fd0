// SPDX-License-Identifier: Apache-2.0
//
// The slots of one rank: for every MoE layer the weights of slots_per_rank experts, each a private
// copy. With moe_tp > 1, several ranks have the same slots, each with its slice of the weights.
// Where a model is larger than memory, some are absent: see resident_experts.h.
//
// Thread safety: several threads may read; exchange() needs exclusive access.
#pragma once

#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "model/config/config.h"
#include "weights/expert_record.h"
#include "weights/host_pool.h"
#include "wideep/placement.h"

namespace wideep::model {

// Reads experts into the host pool, as long as there are some that no rank reads. layers: the MoE
// layers of the pool, as numbers of the model, ascending. Errors: as WeightLoader; the files have
// changed, then nothing of what was just read counts; there is not enough memory.
Status fill_host_pool(std::span<const int> layers, const weights::WeightLoader& loader, int rank,
                      base::ThreadPool& threads, weights::HostPool& pool);

// Whose slots to load: the rank in the placement, and the slice of its experts.
struct SlotOwner {
  SlotOwner(int rank) : ep_rank(rank) {}  // whole experts
  SlotOwner(int rank, int its_slice, int slices)
      : ep_rank(rank), slice(its_slice), num_slices(slices) {}

  int ep_rank;
  int slice = 0;
  int num_slices = 1;
};

class ExpertSlots {
 public:
  // Reads this rank's experts. Errors: as WeightLoader.
  static Result<ExpertSlots> load(const ModelConfig& config, const weights::WeightLoader& loader,
                                  const balance::ModelPlacement& placement, const SlotOwner& owner);

  // Copies this rank's experts from the pool. REQUIRES: all ranks have filled it. Errors (failed):
  // a copy differs from what was loaded into the pool.
  static Result<ExpertSlots> copy(const weights::HostPool& pool,
                                  const balance::ModelPlacement& placement, const SlotOwner& owner,
                                  base::ThreadPool& threads);

  // All of them absent; exchange() gives them memory. Not for take_in() and rearrange().
  static ExpertSlots absent(const weights::ExpertShape& shape,
                            const balance::ModelPlacement& placement, const SlotOwner& owner);

  const weights::ExpertShape& shape() const { return shape_; }
  int slice() const { return slice_; }
  std::vector<int> layers() const;  // of the model, ascending

  bool is_absent(int layer, int local_slot) const {
    return slots_[first_slots_.at(layer) + static_cast<size_t>(local_slot)] == nullptr;
  }
  // REQUIRES: it is not absent.
  weights::GatedMlp expert(int layer, int local_slot) const {
    return weights::view_expert(shape_, slots_[first_slots_.at(layer) + local_slot], slice_);
  }

  // For borrowed slots (ep/row_sharing.h): any expert, where the pool has it. REQUIRES: read_pool.
  weights::GatedMlp pool_expert(int layer, int32_t expert) const {
    const auto position = std::distance(first_slots_.begin(), first_slots_.find(layer));
    return weights::view_expert(shape_, pool_->record({static_cast<int>(position), expert, slice_}),
                                slice_);
  }
  // The pool of the slots' layers, filled; it outlives the slots.
  void read_pool(const weights::HostPool& pool) { pool_ = &pool; }

  // Puts the record of another expert into a slot and returns the one that was there. Not during a
  // forward pass.
  std::byte* exchange(int layer, int local_slot, int32_t expert, std::byte* record) {
    const size_t slot = first_slots_.at(layer) + static_cast<size_t>(local_slot);
    experts_[slot] = expert;
    return std::exchange(slots_[slot], record);
  }

  // ---- for a group with other members (docs/faults.md) ----

  // The experts of a layer's slots; kUnusedSlot after a fill that has failed.
  std::span<const int32_t> experts(int layer) const;
  // Copies records that belong to others, from which exchange() has got them, into memory of its
  // own. Afterwards they are not needed any more.
  void take_in();
  // An expert that has to be brought into a slot.
  struct Missing {
    int layer = 0;
    int32_t expert = 0;
    std::byte* record = nullptr;
  };
  using Fill = std::function<Status(std::span<const Missing>)>;
  // Makes the slots those of another placement: experts that are here stay where they are in
  // memory, `fill` writes the others. REQUIRES: the layers are the same; take_in() was called.
  // Errors: those of fill.
  Status rearrange(const balance::ModelPlacement& placement, const SlotOwner& owner,
                   const Fill& fill);

  uint64_t total_bytes() const;

 private:
  // The slots without memory.
  ExpertSlots(const weights::ExpertShape& shape, const balance::ModelPlacement& placement,
              const SlotOwner& owner);
  void add_block(size_t num_records);
  void give_memory();

  weights::ExpertShape shape_;
  int slice_;
  const weights::HostPool* pool_ = nullptr;
  std::vector<base::AlignedBytes> blocks_;  // memory of all records; exchange() swaps records
  std::vector<std::byte*> spare_;           // records of blocks_ that no slot needs
  std::vector<std::byte*> slots_;           // [slots of all layers] the record of each slot
  std::vector<int32_t> experts_;            // [slots of all layers] the expert of each slot
  std::map<int, size_t> first_slots_;       // by layer: index of its first slot in slots_
};

// Both bring experts into records. placement: of the layers of the pool. Errors: as
// ExpertSlots::copy and ExpertSlots::load.
Status copy_experts(const weights::HostPool& pool, const balance::ModelPlacement& placement,
                    int slice, std::span<const ExpertSlots::Missing> experts,
                    base::ThreadPool& threads);
Status load_experts(const ModelConfig& config, const weights::WeightLoader& loader, int slice,
                    int num_slices, std::span<const ExpertSlots::Missing> experts);

}  // namespace wideep::model
