// SPDX-License-Identifier: Apache-2.0
#include "recordings/shown_moves.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace wideep::recordings {
namespace {

bool ends_before(const ShownMove& a, const ShownMove& b) {
  return std::tie(a.switched, a.layer_idx) < std::tie(b.switched, b.layer_idx);
}

// One for each layer and decision, in order of `switched`. A server writes millions of updates.
std::vector<ShownMove> moves_of(const RoutingLog& log) {
  std::vector<ShownMove> all;
  std::map<std::pair<size_t, int64_t>, size_t> index_of;  // by layer and decision
  for (const RoutingLog::LayerUpdate& update : log.layer_updates) {
    const auto layer = std::ranges::lower_bound(log.layers, update.layer) - log.layers.begin();
    const auto layer_idx = static_cast<size_t>(layer);
    const auto [found, is_new] = index_of.emplace(std::pair(layer_idx, update.decided), all.size());
    if (is_new) all.push_back({.layer_idx = layer_idx, .decided = update.decided, .phases = {}});
    ShownMove& move = all[found->second];
    move.switched = update.switched;
    move.moves += update.moves;
  }
  std::erase_if(all, [](const ShownMove& each) { return each.moves == 0; });
  std::ranges::sort(all, ends_before);
  return all;
}

void set_phases(const std::vector<ShownMove>& all, int64_t around, ShownMove* move) {
  int64_t first = move->decided - around + 1, last = move->switched + around - 1;
  for (const ShownMove& other : all) {
    if (other.layer_idx != move->layer_idx || other.decided == move->decided) continue;
    // One that was under way before has ended before this one was decided.
    if (other.switched <= move->decided) first = std::max(first, other.switched);
    if (other.decided >= move->switched) last = std::min(last, other.switched - 1);
  }
  move->phases[0].first = std::max<int64_t>(first, 0);
  move->phases[0].last = move->decided;
  move->phases[1].first = move->decided + 1;
  move->phases[1].last = move->switched - 1;
  move->phases[2].first = move->switched;
  move->phases[2].last = last;
}

void add_sent(const RoutingLog& log, ShownMove* move) {
  const auto num_ranks = static_cast<size_t>(log.ep_size);
  for (ShownMove::Phase& phase : move->phases) {
    phase.sent.assign(num_ranks, std::vector<int64_t>(num_ranks));
    const auto begin = std::ranges::lower_bound(log.iterations, phase.first, {},
                                                &RoutingLog::Iteration::iteration);
    for (auto each = begin; each != log.iterations.end() && each->iteration <= phase.last; ++each) {
      ++phase.num_recorded;
      for (size_t from = 0; from < num_ranks; ++from) {
        const std::vector<int32_t>& row = each->sent[move->layer_idx][from];
        for (size_t to = 0; to < num_ranks; ++to) phase.sent[from][to] += row[to];
      }
    }
  }
}

}  // namespace

std::vector<ShownMove> shown_moves(const RoutingLog& log, size_t max, int64_t around) {
  const std::vector<ShownMove> all = moves_of(log);
  std::vector<ShownMove> shown = all;
  if (shown.size() > max) {
    std::ranges::sort(shown, [](const ShownMove& a, const ShownMove& b) {
      return a.moves != b.moves ? a.moves > b.moves : ends_before(a, b);
    });
    shown.resize(max);
    std::ranges::sort(shown, ends_before);
  }
  for (ShownMove& move : shown) {
    set_phases(all, around, &move);
    add_sent(log, &move);
  }
  return shown;
}

}  // namespace wideep::recordings
