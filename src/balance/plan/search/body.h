// SPDX-License-Identifier: Apache-2.0
//
// The body of every Search table, included once per instruction set, inside an open target region
// and an unnamed namespace. Vectors are the compilers' own (16 lanes of 4 bytes, whatever the width
// of the registers), and the instruction set never changes the order of lanes: equal input gives
// equal plans everywhere.

// Vectors are passed between inlined functions only, so that no calling convention is involved.
#pragma GCC diagnostic ignored "-Wpsabi"

#define WIDEEP_INLINE __attribute__((always_inline)) inline

using Floats = float __attribute__((vector_size(64)));
using Ints = int32_t __attribute__((vector_size(64)));
using Keys = uint32_t __attribute__((vector_size(64)));

constexpr Keys kLane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr Keys kNone = {};
constexpr Keys kAll = ~kNone;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <typename V, typename T>
WIDEEP_INLINE const V& vector_at(const T* p) {
  return *reinterpret_cast<const V*>(p);
}
template <typename V, typename T>
WIDEEP_INLINE V& vector_at(T* p) {
  return *reinterpret_cast<V*>(p);
}

WIDEEP_INLINE Keys smaller(Keys a, Keys b) { return a < b ? a : b; }
WIDEEP_INLINE Keys larger(Keys a, Keys b) { return a < b ? b : a; }
WIDEEP_INLINE Floats absolute(Floats x) { return (Floats)((Keys)x & 0x7fffffffu); }

// Lane i gets lane i ^ Distance.
template <int Distance>
WIDEEP_INLINE Keys partner(Keys v) {
  if constexpr (Distance == 1) {
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14);
  } else if constexpr (Distance == 2) {
    return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13);
  } else if constexpr (Distance == 4) {
    return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11);
  } else {
    return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  }
}

WIDEEP_INLINE uint32_t smallest_lane(Keys v) {
  v = smaller(v, partner<8>(v));
  v = smaller(v, partner<4>(v));
  v = smaller(v, partner<2>(v));
  return smaller(v, partner<1>(v))[0];
}

// --- Sorting: Batcher's bitonic network on whole vectors --------------------------------------

// Compares lanes `Distance` apart; lanes set in `descending` sort the other way round.
template <int Distance>
WIDEEP_INLINE Keys compare_lanes(Keys v, Keys descending) {
  const Keys other = partner<Distance>(v);
  const Keys upper = (Keys)((kLane & uint32_t{Distance}) != 0);
  return (upper ^ descending) ? larger(v, other) : smaller(v, other);
}

WIDEEP_INLINE Keys merge_lanes(Keys v, Keys descending) {
  v = compare_lanes<8>(v, descending);
  v = compare_lanes<4>(v, descending);
  v = compare_lanes<2>(v, descending);
  return compare_lanes<1>(v, descending);
}

WIDEEP_INLINE Keys sort_lanes(Keys v, Keys descending) {
  const Keys by2 = (Keys)((kLane & 2u) != 0), by4 = (Keys)((kLane & 4u) != 0);
  const Keys by8 = (Keys)((kLane & 8u) != 0);
  v = compare_lanes<1>(v, by2);
  v = compare_lanes<2>(v, by4);
  v = compare_lanes<1>(v, by4);
  v = compare_lanes<4>(v, by8);
  v = compare_lanes<2>(v, by8);
  v = compare_lanes<1>(v, by8);
  return merge_lanes(v, descending);
}

WIDEEP_INLINE void compare_vectors(Keys& low, Keys& high, bool descending) {
  const Keys small = smaller(low, high), large = larger(low, high);
  low = descending ? large : small;
  high = descending ? small : large;
}

// Ascending; count is a power of two, at least kLanes.
inline void sort_keys(uint32_t* keys, size_t count) {
  Keys* v = &vector_at<Keys>(keys);
  const size_t n = count / kLanes;
  for (size_t i = 0; i < n; ++i) v[i] = sort_lanes(v[i], i & 1 ? kAll : kNone);
  for (size_t block = 2; block <= n; block *= 2) {
    for (size_t distance = block / 2; distance >= 1; distance /= 2) {
      for (size_t i = 0; i < n; ++i) {
        if ((i & distance) == 0) compare_vectors(v[i], v[i | distance], (i & block) != 0);
      }
    }
    for (size_t i = 0; i < n; ++i) v[i] = merge_lanes(v[i], i & block ? kAll : kNone);
  }
}

// Keys hold the leading bits of a positive float and an id below: they sort as the floats do.
inline void sort_ranks(Board& board) {
  for (size_t r = 0; r < board.rank_load.size(); r += kLanes) {
    // Padding is +inf and sorts last.
    const Keys bits = vector_at<Keys>(&board.rank_load[r]);
    vector_at<Keys>(&board.ranks_by_load[r]) =
        (bits & ~board.rank_mask) | (kLane + static_cast<uint32_t>(r));
  }
  sort_keys(board.ranks_by_load.data(), board.ranks_by_load.size());
}

WIDEEP_INLINE Floats replica_loads(const Board& board, size_t e) {
  const Floats replicas = __builtin_convertvector(vector_at<Ints>(&board.replicas[e]), Floats);
  return vector_at<Floats>(&board.load[e]) / replicas;
}

// Heaviest replica first: the bits are inverted. Placed experts and padding come last. Returns the
// number of experts that are not placed.
inline size_t sort_experts(Board& board) {
  Ints placed = (Ints)kNone;
  for (size_t e = 0; e < board.load.size(); e += kLanes) {
    const Keys bits = (Keys)replica_loads(board, e);
    const Ints on_board = vector_at<Ints>(&board.placed[e]);
    placed += on_board;
    vector_at<Keys>(&board.experts_by_load[e]) =
        on_board != 0 ? kAll : (~bits & ~board.expert_mask) | (kLane + static_cast<uint32_t>(e));
  }
  sort_keys(board.experts_by_load.data(), board.experts_by_load.size());
  size_t waiting = static_cast<size_t>(board.num_experts);
  for (int i = 0; i < kLanes; ++i) waiting -= static_cast<size_t>(placed[i]);
  return waiting;
}

inline int sort_replicated(Board& board) {
  uint32_t* keys = board.experts_by_load.data();
  size_t count = 0;
  for (int e = 0; e < board.num_experts; ++e) {
    const auto i = static_cast<size_t>(e);
    keys[count] =
        (~std::bit_cast<uint32_t>(board.load[i]) & ~board.expert_mask) | static_cast<uint32_t>(e);
    count += board.replicas[i] > 1;
  }
  const auto end = static_cast<size_t>(padded_for_sort(static_cast<int>(count)));
  std::fill(keys + count, keys + end, ~0u);
  sort_keys(keys, end);
  return static_cast<int>(count);
}

// --- Replication ------------------------------------------------------------------------------

// min(max(ceil(x), 1), most) for 0 ≤ x < 2^31.
WIDEEP_INLINE Ints round_up(Floats x, int max) {
  const Ints down = __builtin_convertvector(x, Ints);
  const Ints up = down - (__builtin_convertvector(down, Floats) < x);  // true is -1
  const Ints one = (Ints)kNone + 1, limit = (Ints)kNone + max;
  const Ints raised = up < one ? one : up;
  return raised > limit ? limit : raised;
}

// Replicas over all experts if none may carry more than `threshold`.
inline int count_replicas(const Board& board, float threshold) {
  const float inverse = 1.0f / threshold;
  Ints sum = (Ints)kNone;
  for (size_t e = 0; e < board.load.size(); e += kLanes) {
    sum += round_up(vector_at<Floats>(&board.load[e]) * inverse, board.num_ranks);
  }
  int count = 0;
  for (int i = 0; i < kLanes; ++i) count += sum[i];
  // Padded experts have load 0 and were counted as 1 each.
  return count - static_cast<int>(board.load.size()) + board.num_experts;
}

// The expert whose replicas carry most, lower id first among equals, of those not on every rank.
inline size_t heaviest_replica(const Board& board) {
  Floats max = (Floats)kNone - 1.0f;
  Keys where = kNone;
  for (size_t e = 0; e < board.load.size(); e += kLanes) {
    const Ints full = vector_at<Ints>(&board.replicas[e]) >= board.num_ranks;
    const Floats loads = full ? (Floats)kNone - 1.0f : replica_loads(board, e);
    const Ints more = loads > max;
    max = more ? loads : max;
    where = (Keys)more ? kLane + static_cast<uint32_t>(e) : where;
  }
  size_t best = 0;
  float best_load = -1.0f;
  for (int i = 0; i < kLanes; ++i) {
    if (max[i] > best_load || (max[i] == best_load && where[i] < best)) {
      best = where[i];
      best_load = max[i];
    }
  }
  return best;
}

// Equal replicas cross the threshold together, so the search may end below num_slots; the greedy
// gives out the slots that remain.
inline void replicate(Board& board, int num_slots) {
  constexpr int kHalvings = 20;
  float high = *std::max_element(board.load.begin(), board.load.begin() + board.num_experts);
  float low = static_cast<float>(board.total() / num_slots);
  int count = board.num_experts;
  for (int i = 0; i < kHalvings && count != num_slots; ++i) {
    const float middle = 0.5f * (low + high);
    const int needed = count_replicas(board, middle);
    if (needed <= num_slots) {
      high = middle;
      count = needed;
    } else {
      low = middle;
    }
  }
  const float inverse = 1.0f / high;
  for (size_t e = 0; e < board.load.size(); e += kLanes) {
    vector_at<Ints>(&board.replicas[e]) =
        count == board.num_experts
            ? (Ints)kNone + 1
            : round_up(vector_at<Floats>(&board.load[e]) * inverse, board.num_ranks);
  }
  for (; count < num_slots; ++count) ++board.replicas[heaviest_replica(board)];
}

// --- Placement --------------------------------------------------------------------------------

// All replicas that are not on the board yet, heaviest first.
inline const int32_t* list_waiting(Board& board) {
  const size_t experts = sort_experts(board);
  int32_t* end = board.waiting.data();
  for (size_t i = 0; i < experts; ++i) {
    const uint32_t expert = board.experts_by_load[i] & board.expert_mask;
    *end++ = static_cast<int32_t>(expert);
    for (int32_t r = 1; r < board.replicas[expert]; ++r) *end++ = static_cast<int32_t>(expert);
  }
  return board.waiting.data();
}

// One replica to every rank with `level` slots in use, the heaviest to the lightest rank. Returns
// the first one left.
inline const int32_t* fill_level(Board& board, int level, const int32_t* waiting) {
  sort_ranks(board);
  for (int i = 0; i < board.num_ranks; ++i) {
    const int rank = board.rank_at(i);
    if (board.filled[static_cast<size_t>(rank)] == level) board.put(rank, *waiting++);
  }
  return waiting;
}

inline void fill(Board& board) {
  const int32_t* waiting = list_waiting(board);
  int level = *std::min_element(board.filled.begin(), board.filled.end());
  for (; level < board.slots_per_rank; ++level) waiting = fill_level(board, level, waiting);
}

// --- Swaps ------------------------------------------------------------------------------------

struct Swap {
  int hot_slot = -1;  // -1: none helps
  int cold_slot = -1;
};

// The pair of slots whose exchange brings hot and cold rank closest together, if it closes at least
// `min_gain` of the gap.
WIDEEP_INLINE Swap find_swap(Board& board, int hot, int cold, float gap, float min_gain) {
  const auto h = static_cast<size_t>(hot), c = static_cast<size_t>(cold);
  const float* hot_loads = board.slots_of(hot);
  const float* cold_loads = board.slots_of(cold);
  const float half = 0.5f * gap;
  Swap best;
  float best_miss = half * (1.0f - min_gain);
  for (int at = 0; at < board.row; at += kLanes) {
    const Keys lane = kLane + static_cast<uint32_t>(at);
    const Keys movable = (Keys)(lane >= static_cast<uint32_t>(board.pinned[c]));
    const Floats wanted =
        movable ? vector_at<Floats>(cold_loads + at) + half : (Floats)kNone + kInfinity;
    Floats miss = (Floats)kNone + kInfinity;
    Ints from = (Ints)kNone;
    for (int i = board.pinned[h]; i < board.slots_per_rank; ++i) {
      const Floats m = absolute(hot_loads[i] - wanted);
      const Ints better = m < miss;
      miss = better ? m : miss;
      from = better ? (Ints)kNone + i : from;
    }
    // The lane number replaces the lowest bits of the miss: one minimum finds both, ties go to the
    // lower slot on every instruction set.
    const uint32_t key = smallest_lane(((Keys)miss & ~uint32_t{kLanes - 1}) | kLane);
    const auto k = key & (kLanes - 1);
    if (std::bit_cast<float>(key - k) < best_miss) {
      best_miss = std::bit_cast<float>(key - k);
      best = {from[k], at + static_cast<int>(k)};
    }
  }
  return best;
}

// False if the exchange would put two replicas of an expert on one rank.
inline bool allowed(Board& board, int hot, int cold, Swap swap) {
  const int32_t leaves = board.experts_of(hot)[swap.hot_slot];
  const int32_t comes = board.experts_of(cold)[swap.cold_slot];
  // Experts with one replica need no look-up, and most have one.
  const bool repeats =
      (board.replicas[static_cast<size_t>(leaves)] > 1 && board.holds(cold, leaves)) ||
      (board.replicas[static_cast<size_t>(comes)] > 1 && board.holds(hot, comes));
  return !repeats;
}

WIDEEP_INLINE bool swap_between(Board& board, int hot, int cold, float min_gap, float min_gain) {
  const auto h = static_cast<size_t>(hot), c = static_cast<size_t>(cold);
  const float gap = board.rank_load[h] - board.rank_load[c];
  if (gap <= min_gap) return false;
  const Swap swap = find_swap(board, hot, cold, gap, min_gain);
  if (swap.hot_slot < 0 || !allowed(board, hot, cold, swap)) return false;
  float &hot_load = board.slots_of(hot)[swap.hot_slot],
        &cold_load = board.slots_of(cold)[swap.cold_slot];
  const float moved = hot_load - cold_load;
  std::swap(hot_load, cold_load);
  std::swap(board.experts_of(hot)[swap.hot_slot], board.experts_of(cold)[swap.cold_slot]);
  board.rank_load[h] -= moved;
  board.rank_load[c] += moved;
  return true;
}

// Swaps between the hottest rank and the coldest, the second and the second, ... Returns how many
// swapped. Each rank is in one pair, so the order of ranks stays valid for the round.
inline int swap_in_pairs(Board& board, float limit, float min_gap, int max_swaps,
                         bool* hottest_cooled) {
  int swaps = 0;
  for (int i = 0; i < board.num_ranks / 2 && swaps < max_swaps; ++i) {
    const int hot = board.rank_at(board.num_ranks - 1 - i);
    if (board.rank_load[static_cast<size_t>(hot)] <= limit) break;
    swaps += swap_between(board, hot, board.rank_at(i), min_gap, 0.02f);
    if (i == 0) *hottest_cooled = swaps > 0;
  }
  return swaps;
}

// The hottest rank decides the imbalance. If its pair found no swap, any gain with another rank
// counts.
inline bool swap_hottest_with_any(Board& board) {
  const int hot = board.rank_at(board.num_ranks - 1);
  for (int i = 0; i < board.num_ranks - 1; ++i) {
    if (swap_between(board, hot, board.rank_at(i), 0.0f, 1e-5f)) return true;
  }
  return false;
}

inline float improve(Board& board, const Goal& goal) {
  const float mean = board.mean_rank_load();
  const float limit = mean * (1.0f + goal.tolerance), min_gap = 0.5f * goal.tolerance * mean;
  int swaps_left = goal.max_swaps;
  for (int round = 0; round < goal.max_rounds && swaps_left > 0; ++round) {
    sort_ranks(board);
    if (board.rank_load[static_cast<size_t>(board.rank_at(board.num_ranks - 1))] <= limit) break;
    bool hottest_cooled = false;
    int swaps = swap_in_pairs(board, limit, min_gap, swaps_left, &hottest_cooled);
    if (!hottest_cooled && swaps < swaps_left) swaps += swap_hottest_with_any(board);
    if (swaps == 0) break;
    swaps_left -= swaps;
  }
  return board.max_rank_load() / mean - 1.0f;
}

#undef WIDEEP_INLINE
