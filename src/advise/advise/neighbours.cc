// SPDX-License-Identifier: Apache-2.0
//
// Nothing is weighed here: neighbours are looked up among the candidates of advise(), so a layout
// that the sweep has left out is not shown. Another EP size rarely has the same number of slots:
// the layout whose ranks have the nearest redundancy stands for it. Slots and drafts do not double:
// theirs are the weighed numbers just below and above.
#include "advise/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>

#include "base/check.h"

namespace wideep::advise {
namespace {

// Slots of a rank beyond those that its part of the experts needs.
int redundant(const cost::Layout& layout, int num_experts) {
  return layout.num_slots / layout.ep - (num_experts + layout.ep - 1) / layout.ep;
}

// The best of the candidates with this layout.
std::optional<Neighbour> best_of(const std::vector<Candidate>& all, const Workload& workload,
                                 const cost::Layout& layout) {
  std::optional<Neighbour> best;
  for (const Candidate& each : all) {
    if (each.layout != layout) continue;
    const bool is_met = meets(each, workload);
    const auto is_improved = [&] {
      if (is_met != best->meets) return is_met;
      return is_met ? is_better(each, best->candidate, workload) : each.tpot < best->candidate.tpot;
    };
    if (!best || is_improved()) best = Neighbour{.candidate = each, .meets = is_met};
  }
  return best;
}

class Finder {
 public:
  Finder(const Advice& advice, const Workload& workload, int num_experts)
      : all_(advice.all), workload_(workload), num_experts_(num_experts), best_(*advice.best) {}

  // Another number of ranks that share the experts, with the nearest redundancy that was weighed.
  void add_ep(int ep) {
    const int wanted = redundant(best_.layout, num_experts_);
    std::optional<cost::Layout> nearest;
    for (const Candidate& each : all_) {
      cost::Layout same = each.layout;
      same.ep = best_.layout.ep;
      same.num_slots = best_.layout.num_slots;
      if (each.layout.ep != ep || same != best_.layout) continue;
      const auto distance = [&](const cost::Layout& layout) {
        return std::abs(redundant(layout, num_experts_) - wanted);
      };
      if (!nearest || distance(each.layout) < distance(*nearest)) nearest = each.layout;
    }
    if (nearest) add(*nearest, fmt::format("EP {} instead of {}", ep, best_.layout.ep));
  }

  // The weighed numbers of slots just below and above.
  void add_slots() {
    std::set<int> counts;
    for (const Candidate& each : all_) {
      cost::Layout same = each.layout;
      same.num_slots = best_.layout.num_slots;
      if (same == best_.layout) counts.insert(each.layout.num_slots);
    }
    const auto place = counts.find(best_.layout.num_slots);
    WIDEEP_CHECK(place != counts.end());
    if (place != counts.begin()) add_slots(*std::prev(place));
    if (std::next(place) != counts.end()) add_slots(*std::next(place));
  }

  // No drafts, where there are some, and the weighed numbers just below and above.
  void add_drafts() {
    std::set<int> counts;
    for (const Candidate& each : all_) counts.insert(each.layout.drafts);
    const int now = best_.layout.drafts;
    std::set<int> wanted;
    if (now > 0) wanted.insert(0);
    const auto place = counts.find(now);
    WIDEEP_CHECK(place != counts.end());
    if (place != counts.begin()) wanted.insert(*std::prev(place));
    if (std::next(place) != counts.end()) wanted.insert(*std::next(place));
    for (const int drafts : wanted) {
      cost::Layout layout = best_.layout;
      layout.drafts = drafts;
      add(layout, fmt::format("{} drafts instead of {}", drafts, now));
    }
  }

  void add(const cost::Layout& layout, std::string change) {
    std::optional<Neighbour> found = best_of(all_, workload_, layout);
    if (!found) return;
    found->change = std::move(change);
    found_.push_back(std::move(*found));
  }

  std::vector<Neighbour> take() { return std::move(found_); }

 private:
  void add_slots(int num_slots) {
    cost::Layout layout = best_.layout;
    layout.num_slots = num_slots;
    add(layout, fmt::format("{} slots instead of {}", num_slots, best_.layout.num_slots));
  }

  const std::vector<Candidate>& all_;
  const Workload& workload_;
  int num_experts_;
  const Candidate& best_;
  std::vector<Neighbour> found_;
};

// Half as many and twice as many.
template <typename Add>
void for_each_step(int now, const Add& add) {
  if (now % 2 == 0) add(now / 2);
  add(now * 2);
}

}  // namespace

std::vector<Neighbour> neighbours_of(const Advice& advice, const Workload& workload,
                                     int num_experts) {
  WIDEEP_CHECK(advice.best.has_value());
  const cost::Layout best = advice.best->layout;
  const bool is_dense = best.num_slots == 0;
  Finder finder(advice, workload, num_experts);
  for_each_step(best.ep, [&](int ep) { finder.add_ep(ep); });
  finder.add_slots();
  for_each_step(best.expert_slices, [&](int slices) {
    cost::Layout layout = best;
    layout.expert_slices = slices;
    finder.add(layout, is_dense ? fmt::format("{} ranks instead of {}", slices, best.expert_slices)
                                : fmt::format("experts in {} slices instead of {}", slices,
                                              best.expert_slices));
  });
  for_each_step(best.stages, [&](int stages) {
    cost::Layout layout = best;
    layout.stages = stages;
    finder.add(layout, fmt::format("{} stages instead of {}", stages, best.stages));
  });
  for_each_step(best.context, [&](int context) {
    cost::Layout layout = best;
    layout.context = context;
    finder.add(layout, fmt::format("sequences on {} ranks instead of {}", context, best.context));
  });
  finder.add_drafts();
  cost::Layout other = best;
  other.attention_dp = !best.attention_dp;
  finder.add(other, fmt::format("{}{}", is_dense ? "" : "attention ",
                                other.attention_dp ? "DP instead of TP" : "TP instead of DP"));
  std::set<kernels::WeightFormat> formats;
  for (const Candidate& each : advice.all) formats.insert(each.layout.format);
  formats.erase(best.format);
  for (const auto format : formats) {
    cost::Layout layout = best;
    layout.format = format;
    finder.add(layout, fmt::format("{} instead of {}", kernels::weight_format_name(format),
                                   kernels::weight_format_name(best.format)));
  }
  return finder.take();
}

}  // namespace wideep::advise
