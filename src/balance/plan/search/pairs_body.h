// SPDX-License-Identifier: Apache-2.0
//
// The body of Search::choose_pairs (pairs.h); included like body.h and after it.

using Steps = int16_t __attribute__((vector_size(64)));
constexpr int kStepLanes = 32;
constexpr Steps kStepLane = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                             16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31};

inline size_t table_index(const PairSearch& pairs, int expert, int count) {
  return static_cast<size_t>(expert) * static_cast<size_t>(pairs.stride) +
         static_cast<size_t>(count);
}

// Loads of all replicas, heaviest first; returns the heaviest pair of the fold.
inline float fold(const Board& board, PairSearch& pairs) {
  pairs.replicas.clear();
  for (int e = 0; e < board.num_experts; ++e) {
    const auto i = static_cast<size_t>(e);
    pairs.replicas.insert(pairs.replicas.end(), static_cast<size_t>(pairs.counts[i]),
                          board.load[i] / static_cast<float>(pairs.counts[i]));
  }
  std::sort(pairs.replicas.begin(), pairs.replicas.end(), std::greater<>());
  float heaviest = 0.0f;
  for (size_t i = 0; i < pairs.replicas.size() / 2; ++i) {
    heaviest =
        std::max(heaviest, pairs.replicas[i] + pairs.replicas[pairs.replicas.size() - 1 - i]);
  }
  return heaviest;
}

// What `count` replicas of an expert need or offer at the level.
inline void tabulate(const Board& board, PairSearch& pairs, float level) {
  const float half = 0.5f * level, per_step = PairSearch::kGrid / half;
  for (int e = 0; e < board.num_experts; ++e) {
    for (int count = 1; count < pairs.stride; ++count) {
      const float load = board.load[static_cast<size_t>(e)] / static_cast<float>(count);
      const size_t i = table_index(pairs, e, count);
      // A need rounds down and an offer rounds up: on the grid the lack is never smaller than in
      // truth.
      const float at = load > half ? std::floor(std::max(level - load, 0.0f) * per_step)
                                   : std::ceil(load * per_step);
      pairs.step_at[i] = static_cast<int16_t>(std::min<float>(at, PairSearch::kGrid));
      pairs.step_by[i] = static_cast<int16_t>(load > half ? -count : count);
    }
  }
}

inline void add_step(PairSearch& pairs, int expert, int count, int sign) {
  const size_t i = table_index(pairs, expert, count);
  const auto at = pairs.step_at[i];
  const auto by = static_cast<int16_t>(sign * pairs.step_by[i]);
  for (int t = 0; t < PairSearch::kGrid; t += kStepLanes) {
    const Steps lane = kStepLane + static_cast<int16_t>(t);
    vector_at<Steps>(&pairs.surplus[static_cast<size_t>(t)]) += (lane >= at) & by;
  }
}

inline int total_lack(const PairSearch& pairs) {
  int lack = 0;
  for (int16_t surplus : pairs.surplus) lack += std::max(0, -int{surplus});
  return lack;
}

// total_lack() if a replica of `from` became one of `to`.
// The same sums as move_replica() followed by total_lack(), in registers: 3000 tries per level
// dominate the search.
inline int lack_after(const PairSearch& pairs, int from, int to) {
  const int from_count = pairs.counts[static_cast<size_t>(from)];
  const int to_count = pairs.counts[static_cast<size_t>(to)];
  const size_t a = table_index(pairs, from, from_count), b = table_index(pairs, to, to_count);
  const auto &at = pairs.step_at, &by = pairs.step_by;
  const int16_t less_a = static_cast<int16_t>(-by[a]), less_b = static_cast<int16_t>(-by[b]);
  Steps lack = {};
  for (int t = 0; t < PairSearch::kGrid; t += kStepLanes) {
    const Steps lane = kStepLane + static_cast<int16_t>(t);
    const Steps surplus = vector_at<Steps>(&pairs.surplus[static_cast<size_t>(t)]) +
                          ((lane >= at[a]) & less_a) + ((lane >= at[a - 1]) & by[a - 1]) +
                          ((lane >= at[b]) & less_b) + ((lane >= at[b + 1]) & by[b + 1]);
    lack += surplus < 0 ? -surplus : Steps{};
  }
  int sum = 0;
  for (int i = 0; i < kStepLanes; ++i) sum += lack[i];
  return sum;
}

inline void move_replica(PairSearch& pairs, int from, int to) {
  int32_t& from_count = pairs.counts[static_cast<size_t>(from)];
  int32_t& to_count = pairs.counts[static_cast<size_t>(to)];
  add_step(pairs, from, from_count, -1);
  add_step(pairs, to, to_count, -1);
  add_step(pairs, from, --from_count, 1);
  add_step(pairs, to, ++to_count, 1);
  if (to_count == 2) pairs.donors.push_back(to);
}

inline void list_donors(PairSearch& pairs) {
  pairs.donors.clear();
  for (size_t e = 0; e < pairs.counts.size(); ++e) {
    if (pairs.counts[e] > 1) pairs.donors.push_back(static_cast<int32_t>(e));
  }
}

inline uint32_t next_random(PairSearch& pairs, size_t below) {
  pairs.random ^= pairs.random << 13;
  pairs.random ^= pairs.random >> 17;
  pairs.random ^= pairs.random << 5;
  return static_cast<uint32_t>((uint64_t{pairs.random} * below) >> 32);
}

// An expert that more replicas may help: one of the heaviest quarter, or a light one as a partner.
inline int random_receiver(PairSearch& pairs) {
  const size_t experts = pairs.by_load.size();
  const size_t heavy = experts / 4 + 1, light = experts * 3 / 8 + 1;
  const size_t position = next_random(pairs, 2) == 0 ? next_random(pairs, heavy)
                                                     : experts - 1 - next_random(pairs, light);
  return pairs.by_load[position];
}

// Partners ≤ t, minus needs ≤ t, of `count` replicas of the expert.
inline int surplus_at(const PairSearch& pairs, int expert, int count, int t) {
  const size_t i = table_index(pairs, expert, count);
  return t >= pairs.step_at[i] ? pairs.step_by[i] : 0;
}

inline void list_lacking(PairSearch& pairs) {
  pairs.lacking.clear();
  for (int t = 0; t < PairSearch::kGrid; ++t) {
    if (pairs.surplus[static_cast<size_t>(t)] < 0) pairs.lacking.push_back(t);
  }
}

// An expert of which one more replica helps where partners ≤ t lack; -1: none drawn. Looking at one
// t first is ten times cheaper than trying a move.
inline int draw_receiver(PairSearch& pairs, int num_ranks, int t) {
  const bool any = next_random(pairs, 4) == 0;
  for (int draw = 0; draw < PairSearch::kDraws; ++draw) {
    const int expert = random_receiver(pairs);
    const int count = pairs.counts[static_cast<size_t>(expert)];
    if (count + 1 >= pairs.stride || count >= num_ranks) continue;
    if (any || surplus_at(pairs, expert, count + 1, t) > surplus_at(pairs, expert, count, t)) {
      return expert;
    }
  }
  return -1;
}

// An expert that can spare a replica without harm at t; -1: none drawn.
inline int draw_donor(PairSearch& pairs, int t) {
  const bool any = next_random(pairs, 2) == 0;
  for (int draw = 0; draw < PairSearch::kDraws; ++draw) {
    const int expert = pairs.donors[next_random(pairs, pairs.donors.size())];
    const int count = pairs.counts[static_cast<size_t>(expert)];
    // The list keeps experts that have given their second replica away; it is made again only when
    // one of them is drawn.
    if (count < 2) {
      list_donors(pairs);
      continue;
    }
    if (any || surplus_at(pairs, expert, count - 1, t) >= surplus_at(pairs, expert, count, t)) {
      return expert;
    }
  }
  return -1;
}

// Changes the counts until every rank can stay at or below the level. False: not found.
inline bool reach_level(const Board& board, PairSearch& pairs, float level) {
  tabulate(board, pairs, level);
  std::fill(pairs.surplus.begin(), pairs.surplus.end(), int16_t{0});
  for (int e = 0; e < board.num_experts; ++e) {
    add_step(pairs, e, pairs.counts[static_cast<size_t>(e)], 1);
  }
  list_donors(pairs);
  list_lacking(pairs);
  int lack = total_lack(pairs);
  for (int i = 0; i < PairSearch::kTriesPerLevel && lack > 0; ++i) {
    const int t = pairs.lacking[next_random(pairs, pairs.lacking.size())];
    const int to = draw_receiver(pairs, board.num_ranks, t);
    const int from = to < 0 ? -1 : draw_donor(pairs, t);
    if (from < 0 || to == from) continue;
    const int after = lack_after(pairs, from, to);
    // Equal is accepted: random moves along a plateau lead out of local optima.
    if (after > lack) continue;
    move_replica(pairs, from, to);
    lack = after;
    list_lacking(pairs);
  }
  return lack == 0;
}

inline void choose_pairs(Board& board, PairSearch& pairs) {
  const auto counts_end = board.replicas.begin() + board.num_experts;
  pairs.stride = *std::max_element(board.replicas.begin(), counts_end) + 3;
  pairs.step_at.resize(table_index(pairs, board.num_experts, 0));
  pairs.step_by.resize(pairs.step_at.size());
  pairs.random = 1;
  std::copy(board.replicas.begin(), counts_end, pairs.counts.begin());
  std::iota(pairs.by_load.begin(), pairs.by_load.end(), 0);
  std::sort(pairs.by_load.begin(), pairs.by_load.end(), [&](int32_t a, int32_t b) {
    const float load_a = board.load[static_cast<size_t>(a)];
    const float load_b = board.load[static_cast<size_t>(b)];
    return load_a != load_b ? load_a > load_b : a < b;
  });
  float best = fold(board, pairs);
  list_donors(pairs);
  if (pairs.donors.empty()) return;
  // Lowers the level by 0.6 % as long as that succeeds, then by half of it, down to 0.1 %. Counts
  // that fit a level are a good start for one a little lower; larger steps, or going on from counts
  // that fit nothing, end two to three times as far from the optimum.
  for (float step = 0.006f; step > 0.001f;) {
    if (reach_level(board, pairs, best * (1.0f - step))) {
      std::copy(pairs.counts.begin(), pairs.counts.end(), board.replicas.begin());
      best = fold(board, pairs);
    } else {
      std::copy_n(board.replicas.begin(), board.num_experts, pairs.counts.begin());
      step *= 0.5f;
    }
  }
}
