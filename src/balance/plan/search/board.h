// SPDX-License-Identifier: Apache-2.0
//
// The working state of wideep's planner for one layer: the loads of experts, slots and ranks.
//
// Loads are float32 and scaled to a mean of 1 per expert: the search needs no more precision, and
// reported figures come from the caller's doubles. Rows are padded to whole vectors of kLanes;
// padded experts and slots have loads that keep them out of every minimum.
//
// Thread safety: none; each planner has its own board.
#pragma once

#include <cstdint>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace wideep::balance::search {

inline constexpr int kLanes = 16;  // of 4 bytes: one AVX-512 register, two of AVX2

inline int padded(int count) { return (count + kLanes - 1) / kLanes * kLanes; }
// Sorting networks want a power of two.
int padded_for_sort(int count);

template <typename T>
struct VectorAligned {
  using value_type = T;
  static constexpr std::align_val_t kAlignment{64};
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kAlignment)); }
  void deallocate(T* p, size_t) noexcept { ::operator delete(p, kAlignment); }
  bool operator==(const VectorAligned&) const = default;
};

template <typename T>
using AlignedVector = std::vector<T, VectorAligned<T>>;

struct Board {
  Board(int num_experts, int num_ranks, int slots_per_rank);

  int num_experts;
  int num_ranks;
  int slots_per_rank;
  int row;  // slots of a rank with padding

  AlignedVector<float> load;           // [experts padded for sorting] tokens, mean 1
  AlignedVector<int32_t> replicas;     // [same] ≥ 1; padding 1
  AlignedVector<float> slot_load;      // [ranks][row] tokens of the slot; +inf where empty
  AlignedVector<int32_t> slot_expert;  // [ranks][row]
  AlignedVector<float> rank_load;      // [ranks padded for sorting]; padding +inf
  std::vector<int> filled;             // [ranks] slots in use
  std::vector<int> capacity;           // [ranks] slots that may be used: slots_per_rank, or set
  AlignedVector<int32_t> placed;       // [experts padded for sorting] 1: its replicas have slots
  std::vector<int> pinned;             // [ranks] leading slots that swaps leave alone
  std::vector<int32_t> order;          // [experts] scratch
  std::vector<std::pair<float, int32_t>> queue;  // [ranks] scratch: score, rank
  std::vector<int32_t> waiting;                  // [slots] scratch of Search::fill
  AlignedVector<uint32_t> experts_by_load;  // [experts padded for sorting] keys, heaviest first
  AlignedVector<uint32_t> ranks_by_load;    // [ranks padded for sorting] keys, lightest first

  uint32_t expert_mask;  // key & mask = id
  uint32_t rank_mask;

  float* slots_of(int rank) { return slot_load.data() + static_cast<size_t>(rank) * row_size(); }
  int32_t* experts_of(int rank) {
    return slot_expert.data() + static_cast<size_t>(rank) * row_size();
  }
  const int32_t* experts_of(int rank) const {
    return slot_expert.data() + static_cast<size_t>(rank) * row_size();
  }
  int rank_at(int position) const {
    return static_cast<int>(ranks_by_load[static_cast<size_t>(position)] & rank_mask);
  }
  bool holds(int rank, int expert) const;

  // Scales the caller's loads into `load`. Experts without tokens get a tiny load, so that spare
  // replicas spread over them; without any load all loads are equal.
  void set_load(std::span<const double> tokens);
  void clear_slots();
  // Puts a replica into the rank's next slot, with an equal share of the expert's load.
  void put(int rank, int expert) {
    const auto e = static_cast<size_t>(expert), r = static_cast<size_t>(rank);
    const int count = replicas[e];  // usually 1: then skip the division, the slowest operation here
    const float share = count == 1 ? load[e] : load[e] / static_cast<float>(count);
    const int slot = filled[r]++;
    slots_of(rank)[slot] = share;
    experts_of(rank)[slot] = expert;
    rank_load[r] += share;
  }

  double total() const { return num_experts; }  // by scaling, to within rounding
  float mean_rank_load() const { return static_cast<float>(total() / num_ranks); }
  float max_rank_load() const;

 private:
  size_t row_size() const { return static_cast<size_t>(row); }
};

// Places all replicas, heaviest first, each on the lightest rank that has a free slot and lacks the
// expert: the greedy of the other planners (longest processing time first). Slower than
// Search::fill, and a different starting point. Needs an empty board.
void fill_lightest_first(Board& board);

// The same for ranks of unequal capacity, but each on the rank whose free slots must carry most,
// each, to bring the rank to the mean.
void fill_neediest_first(Board& board);

// Exchanges slots between ranks until no rank holds two replicas of an expert. Needs all replicas
// on the board and no expert with more of them than ranks. The balance may become a little worse,
// so call it before swaps. False: for ranks of unequal capacity, single exchanges may not get
// there.
bool separate_replicas(Board& board);

}  // namespace wideep::balance::search
