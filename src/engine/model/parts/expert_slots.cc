// SPDX-License-Identifier: Apache-2.0
//
// A slot is a pointer to a record. Moving an expert is an exchange of pointers, so records of other
// owners get into slots, and own ones become free; take_in() brings all back into own memory before
// others' memory may vanish.
//
// rearrange() after a change of members copies nothing that is here already: first experts that
// keep their slot, then those that change it, then the missing ones into spare records. Slots that
// are being filled count as unused until it has succeeded, so that a failed fill leaves nothing
// false behind.
#include "model/parts/expert_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <set>
#include <vector>

#include "base/content_hash.h"
#include "base/numa.h"
#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

Status fill_host_pool(std::span<const int> layers, const weights::WeightLoader& loader, int rank,
                      base::ThreadPool& threads, weights::HostPool& pool) {
  while (const auto part = pool.take(rank)) {
    WIDEEP_TRY(pool.reserve(*part));
    for (int i = part->begin; i < part->end; ++i) {
      const weights::HostPool::Address at = pool.address(i);
      WIDEEP_TRY(weights::load_expert(loader, pool.shape(),
                                      expert_prefix(layers[at.layer], at.expert), pool.record(at),
                                      at.slice));
    }
    WIDEEP_TRY(loader.run());
    // Ranks that follow this one use a finished part without asking where it is from.
    WIDEEP_TRY(loader.check_unchanged());
    // Sealing stores a hash of the contents, against which every later copy is checked.
    threads.parallel_for(part->end - part->begin, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = part->begin + from; i < part->begin + to; ++i) {
        pool.seal(pool.address(static_cast<int>(i)));
      }
    });
    pool.finish(*part);
  }
  return {};
}

ExpertSlots::ExpertSlots(const weights::ExpertShape& shape,
                         const balance::ModelPlacement& placement, const SlotOwner& owner)
    : shape_(shape), slice_(owner.slice) {
  for (const auto& [layer, layer_placement] : placement.layers) {
    first_slots_[layer] = experts_.size();
    const auto own = layer_placement.experts_of_rank(owner.ep_rank);
    experts_.insert(experts_.end(), own.begin(), own.end());
  }
  slots_.resize(experts_.size());
}

void ExpertSlots::give_memory() {
  add_block(experts_.size());
  slots_ = std::exchange(spare_, {});
}

ExpertSlots ExpertSlots::absent(const weights::ExpertShape& shape,
                                const balance::ModelPlacement& placement, const SlotOwner& owner) {
  return {shape, placement, owner};
}

std::vector<int> ExpertSlots::layers() const {
  std::vector<int> layers;
  for (const auto& [layer, first] : first_slots_) layers.push_back(layer);
  return layers;
}

// Adds records to the spare ones.
void ExpertSlots::add_block(size_t num_records) {
  base::AlignedBytes& block = blocks_.emplace_back(num_records * shape_.record_bytes());
  // NUMA: only this rank reads the slots.
  base::keep_near_this_thread(block.data(), block.size());
  for (size_t i = 0; i < num_records; ++i) {
    spare_.push_back(block.data() + i * shape_.record_bytes());
  }
}

uint64_t ExpertSlots::total_bytes() const {
  uint64_t bytes = 0;
  for (const base::AlignedBytes& block : blocks_) bytes += block.size();
  return bytes;
}

std::span<const int32_t> ExpertSlots::experts(int layer) const {
  const auto first = first_slots_.find(layer);
  const auto next = std::next(first);
  const size_t end = next == first_slots_.end() ? experts_.size() : next->second;
  return std::span(experts_).subspan(first->second, end - first->second);
}

void ExpertSlots::take_in() {
  std::set<std::byte*> free(spare_.begin(), spare_.end());
  for (base::AlignedBytes& block : blocks_) {
    for (size_t at = 0; at < block.size(); at += shape_.record_bytes()) {
      free.insert(block.data() + at);
    }
  }
  std::vector<std::byte**> foreign;
  for (std::byte*& slot : slots_) {
    if (free.erase(slot) == 0) foreign.push_back(&slot);
  }
  for (std::byte** slot : foreign) {
    std::byte* own = *free.begin();
    free.erase(free.begin());
    std::memcpy(own, *slot, shape_.record_bytes());
    *slot = own;
  }
  spare_.assign(free.begin(), free.end());
}

Status ExpertSlots::rearrange(const balance::ModelPlacement& placement, const SlotOwner& owner,
                              const Fill& fill) {
  std::vector<std::byte*> slots;
  std::vector<int32_t> experts;
  std::map<int, size_t> first_slots;
  for (const auto& [layer, layer_placement] : placement.layers) {
    const size_t first = slots.size(), before = first_slots_.at(layer);
    const auto count = this->experts(layer).size();
    const std::span<std::byte*> had = std::span(slots_).subspan(before, count);
    std::vector<int32_t> held(this->experts(layer).begin(), this->experts(layer).end());
    const auto wanted = layer_placement.experts_of_rank(owner.ep_rank);
    first_slots[layer] = first;
    experts.insert(experts.end(), wanted.begin(), wanted.end());
    slots.resize(first + wanted.size(), nullptr);
    // An expert that stays keeps its slot; others of the rank follow.
    const auto take = [&](size_t slot, size_t from) {
      slots[first + slot] = had[from];
      held[from] = balance::kUnusedSlot;
      had[from] = nullptr;
    };
    for (size_t slot = 0; slot < std::min(wanted.size(), count); ++slot) {
      if (held[slot] == wanted[slot]) take(slot, slot);
    }
    for (size_t slot = 0; slot < wanted.size(); ++slot) {
      const auto found = std::find(held.begin(), held.end(), wanted[slot]);
      if (slots[first + slot] == nullptr && found != held.end()) {
        take(slot, static_cast<size_t>(found - held.begin()));
      }
    }
    for (std::byte* record : had) {
      if (record != nullptr) spare_.push_back(record);
    }
  }
  const auto lacking = static_cast<size_t>(std::count(slots.begin(), slots.end(), nullptr));
  if (lacking > spare_.size()) add_block(lacking - spare_.size());
  std::vector<Missing> missing;
  std::vector<size_t> missing_slots;
  for (auto layer = first_slots.begin(); layer != first_slots.end(); ++layer) {
    const auto next = std::next(layer);
    const size_t end = next == first_slots.end() ? slots.size() : next->second;
    for (size_t slot = layer->second; slot < end; ++slot) {
      if (slots[slot] != nullptr) continue;
      slots[slot] = spare_.back();
      spare_.pop_back();
      missing.push_back({layer->first, experts[slot], slots[slot]});
      missing_slots.push_back(slot);
    }
  }
  slots_ = std::move(slots);
  experts_ = std::move(experts);
  first_slots_ = std::move(first_slots);
  // Until it is filled, a slot has nothing that could be relied on.
  for (const size_t slot : missing_slots) experts_[slot] = balance::kUnusedSlot;
  if (!missing.empty()) WIDEEP_TRY(fill(missing));
  for (size_t i = 0; i < missing.size(); ++i) experts_[missing_slots[i]] = missing[i].expert;
  return {};
}

Result<ExpertSlots> ExpertSlots::load(const ModelConfig& config,
                                      const weights::WeightLoader& loader,
                                      const balance::ModelPlacement& placement,
                                      const SlotOwner& owner) {
  ExpertSlots slots(experts_shape(config, loader, owner.num_slices), placement, owner);
  slots.give_memory();
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
  slots.give_memory();
  std::vector<Missing> all;
  for (const auto& [layer, first] : slots.first_slots_) {
    size_t slot = first;
    for (const int32_t expert : slots.experts(layer)) {
      all.push_back({layer, expert, slots.slots_[slot++]});
    }
  }
  WIDEEP_TRY(copy_experts(pool, placement, owner.slice, all, threads));
  return slots;
}

Status copy_experts(const weights::HostPool& pool, const balance::ModelPlacement& placement,
                    int slice, std::span<const ExpertSlots::Missing> experts,
                    base::ThreadPool& threads) {
  const auto address = [&](const ExpertSlots::Missing& each) {
    const auto layer = std::distance(placement.layers.begin(), placement.layers.find(each.layer));
    return weights::HostPool::Address{static_cast<int>(layer), each.expert, slice};
  };
  std::atomic<int64_t> wrong{-1};
  threads.parallel_for(static_cast<int64_t>(experts.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const ExpertSlots::Missing& each = experts[static_cast<size_t>(i)];
      const uint64_t hash = base::copy_and_hash(pool.record(address(each)), each.record,
                                                pool.shape().record_bytes(), [] { return true; });
      // The copy is hashed on the way, which finds faulty memory or a faulty disk.
      if (hash != pool.content_hash(address(each))) wrong = i;
    }
  });
  if (wrong < 0) return {};
  const weights::HostPool::Address at = address(experts[static_cast<size_t>(wrong)]);
  return failed(fmt::format(
      "host pool: expert {} of MoE layer {} differs from what was loaded: memory or disk is faulty",
      at.expert, at.layer));
}

Status load_experts(const ModelConfig& config, const weights::WeightLoader& loader, int slice,
                    int num_slices, std::span<const ExpertSlots::Missing> experts) {
  const weights::ExpertShape shape = experts_shape(config, loader, num_slices);
  for (const ExpertSlots::Missing& each : experts) {
    WIDEEP_TRY(weights::load_expert(loader, shape, expert_prefix(each.layer, each.expert),
                                    each.record, slice));
  }
  return loader.run();
}

}  // namespace wideep::model
