// SPDX-License-Identifier: Apache-2.0
//
// The map from slots to experts is taken as the truth, for it says whose weights lie where; it is
// inverted once, and every other map is compared with that. Lengths come first: maps of different
// sizes cannot be compared slot by slot. A fault of one kind is counted, and only the first one
// gets a text, because a stale map is wrong in thousands of places at once. Values come from
// files, so nothing is allocated by their size, and sums are taken of unsigned numbers.
#include "wideep/expert_maps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

namespace wideep::balance {
namespace {

constexpr int64_t kNone = -1;

struct Length {
  const char* name;
  size_t found;
  size_t expected;
  const char* of;
};

class Check {
 public:
  explicit Check(const ExpertMaps& maps)
      : maps_(maps),
        num_experts_(maps.num_experts),
        num_slots_(static_cast<int64_t>(maps.slot_to_expert.size())) {}

  std::vector<MapFault> run() {
    // Maps of another size cannot be compared slot by slot.
    check_lengths();
    if (!faults_.empty()) return std::move(faults_);
    // There are as many slots at least: a stray id that was taken for the last expert's would
    // otherwise ask for any amount of memory.
    held_.resize(static_cast<size_t>(num_experts_));
    invert();
    check_experts();
    if (!maps_.expert_to_slots.empty()) check_lists();
    if (!maps_.chosen_slot.empty()) check_chosen();
    if (!maps_.replicas.empty()) check_counts();
    if (!maps_.tokens_of_slot.empty() && !maps_.tokens_of_expert.empty()) check_tokens();
    if (maps_.ep_size > 0) check_ranks();  // the only one without errors: last
    return std::move(faults_);
  }

 private:
  // The text is made for the first fault of its kind only.
  template <typename Text>
  void report(MapFaultKind kind, Text text) {
    for (MapFault& fault : faults_) {
      if (fault.kind != kind) continue;
      ++fault.number;
      return;
    }
    faults_.push_back({kind, 1, text()});
  }

  void check_lengths() {
    const auto experts = static_cast<size_t>(num_experts_);
    const auto slots = static_cast<size_t>(num_slots_);
    for (const Length& length :
         {Length{"logical_to_physical", maps_.expert_to_slots.size(), experts, "experts"},
          Length{"replica counts", maps_.replicas.size(), experts, "experts"},
          Length{"dispatch map", maps_.chosen_slot.size(), experts, "experts"},
          Length{"tokens of experts", maps_.tokens_of_expert.size(), experts, "experts"},
          Length{"tokens of slots", maps_.tokens_of_slot.size(), slots, "slots"}}) {
      if (length.found == 0 || length.found == length.expected) continue;
      report(MapFaultKind::kLength, [&] {
        return fmt::format("{}: expected {} values, one for each of the {}, found {}", length.name,
                           length.expected, length.of, length.found);
      });
    }
    if (num_experts_ < 1) {
      report(MapFaultKind::kLength,
             [&] { return fmt::format("expected at least 1 expert, found {}", num_experts_); });
    }
    if (num_slots_ < num_experts_) {
      report(MapFaultKind::kLength, [&] {
        return fmt::format("expected at least {} slots, one for each expert, found {}",
                           num_experts_, num_slots_);
      });
    }
    if (maps_.ep_size > 0 && num_slots_ % maps_.ep_size != 0) {
      report(MapFaultKind::kLength, [&] {
        return fmt::format("expected a multiple of the {} ranks, found {} slots", maps_.ep_size,
                           num_slots_);
      });
    }
  }

  void invert() {
    for (int64_t slot = 0; slot < num_slots_; ++slot) {
      const int64_t expert = maps_.slot_to_expert[static_cast<size_t>(slot)];
      if (expert == kNone) continue;
      if (expert >= 0 && expert < num_experts_) {
        held_[static_cast<size_t>(expert)].push_back(slot);
        continue;
      }
      report(MapFaultKind::kNoSuchExpert, [&] {
        return fmt::format("slot {}: expected an expert from 0 to {}, or -1 (not in use), found {}",
                           slot, num_experts_ - 1, expert);
      });
    }
  }

  void check_experts() {
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      if (!held(expert).empty()) continue;
      report(MapFaultKind::kExpertWithout, [&] {
        return fmt::format("expert {}: no slot holds it, so its tokens have nowhere to go", expert);
      });
    }
  }

  void check_lists() {
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      std::vector<int64_t> listed = maps_.expert_to_slots[static_cast<size_t>(expert)];
      std::erase(listed, kNone);
      for (const int64_t slot : listed) check_slot(expert, slot, "logical_to_physical lists");
      std::sort(listed.begin(), listed.end());
      const auto twice = std::adjacent_find(listed.begin(), listed.end());
      if (twice != listed.end()) {
        report(MapFaultKind::kListedTwice, [&] {
          return fmt::format(
              "expert {}: logical_to_physical lists slot {} twice, which gets twice "
              "its share of tokens",
              expert, *twice);
        });
      }
      for (const int64_t slot : held(expert)) {
        if (std::binary_search(listed.begin(), listed.end(), slot)) continue;
        report(MapFaultKind::kMissingReplica, [&] {
          return fmt::format(
              "expert {}: slot {} holds it, logical_to_physical lists {}: a replica "
              "is missing and gets no tokens",
              expert, slot, listed.empty() ? "none" : fmt::format("{}", fmt::join(listed, ", ")));
        });
      }
    }
  }

  void check_chosen() {
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      const int64_t slot = maps_.chosen_slot[static_cast<size_t>(expert)];
      if (slot != kNone) check_slot(expert, slot, "the dispatch map uses");
    }
  }

  void check_slot(int64_t expert, int64_t slot, const char* does) {
    if (slot < 0 || slot >= num_slots_) {
      report(MapFaultKind::kNoSuchSlot, [&] {
        return fmt::format("expert {}: {} slot {}, expected one from 0 to {}", expert, does, slot,
                           num_slots_ - 1);
      });
      return;
    }
    const int64_t holds = maps_.slot_to_expert[static_cast<size_t>(slot)];
    if (holds == expert) return;
    report(MapFaultKind::kStale, [&] {
      return fmt::format(
          "expert {}: {} slot {}, which holds {}: one of the maps is stale, and tokens get the "
          "weights of another expert",
          expert, does, slot, holds == kNone ? "nothing" : fmt::format("expert {}", holds));
    });
  }

  void check_counts() {
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      const int64_t count = maps_.replicas[static_cast<size_t>(expert)];
      const auto found = static_cast<int64_t>(held(expert).size());
      if (count == found) continue;
      report(MapFaultKind::kCount, [&] {
        return fmt::format(
            "expert {}: the replica count is {}, the slots that hold it are {} "
            "(counts sum to {}, slots in use are {})",
            expert, count, found, sum(maps_.replicas), num_in_use());
      });
    }
  }

  void check_tokens() {
    if (are_dispatched_by_id()) {
      report(MapFaultKind::kTokensById, [&] {
        return std::string(
            "each slot received the tokens of the expert of the same number: tokens are dispatched "
            "by expert ids, not by the map");
      });
      return;
    }
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      uint64_t total = 0;  // as in sum()
      for (const int64_t slot : held(expert)) {
        total += static_cast<uint64_t>(maps_.tokens_of_slot[static_cast<size_t>(slot)]);
      }
      const auto received = static_cast<int64_t>(total);
      const int64_t chosen = maps_.tokens_of_expert[static_cast<size_t>(expert)];
      if (received == chosen) continue;
      report(MapFaultKind::kTokens, [&] {
        return fmt::format(
            "expert {}: the router chose it for {} tokens, its slots {} received "
            "{} (of {} and {} in all): tokens are dispatched by another map",
            expert, chosen, fmt::join(held(expert), ", "), received, sum(maps_.tokens_of_expert),
            sum(maps_.tokens_of_slot));
      });
    }
  }

  // Experts in order are at their own number, so that is no fault.
  bool are_dispatched_by_id() const {
    bool differs = false;
    for (int64_t slot = 0; slot < num_slots_; ++slot) {
      const auto index = static_cast<size_t>(slot);
      const int64_t expected = slot < num_experts_ ? maps_.tokens_of_expert[index] : 0;
      if (maps_.tokens_of_slot[index] != expected) return false;
      differs = differs || (expected != 0 && maps_.slot_to_expert[index] != slot);
    }
    return differs;
  }

  void check_ranks() {
    const int64_t per_rank = num_slots_ / maps_.ep_size;
    for (int64_t expert = 0; expert < num_experts_; ++expert) {
      const std::vector<int64_t>& slots = held(expert);
      for (size_t i = 1; i < slots.size(); ++i) {
        if (slots[i] / per_rank != slots[i - 1] / per_rank) continue;
        report(MapFaultKind::kSameRank, [&] {
          return fmt::format(
              "expert {}: slots {} and {} are both on rank {}, where the second "
              "replica has no use",
              expert, slots[i - 1], slots[i], slots[i] / per_rank);
        });
      }
    }
  }

  static int64_t sum(std::span<const int64_t> values) {
    // Files may hold anything: unsigned addition cannot overflow.
    uint64_t total = 0;
    for (const int64_t value : values) total += static_cast<uint64_t>(value);
    return static_cast<int64_t>(total);
  }

  int64_t num_in_use() const {
    return num_slots_ - std::count(maps_.slot_to_expert.begin(), maps_.slot_to_expert.end(), kNone);
  }

  const std::vector<int64_t>& held(int64_t expert) const {
    return held_[static_cast<size_t>(expert)];
  }

  const ExpertMaps& maps_;
  int64_t num_experts_;
  int64_t num_slots_;
  std::vector<std::vector<int64_t>> held_;  // [E] the slots that hold an expert, ascending
  std::vector<MapFault> faults_;
};

}  // namespace

std::string_view name_of(MapFaultKind kind) {
  switch (kind) {
    case MapFaultKind::kLength:
      return "length";
    case MapFaultKind::kNoSuchExpert:
      return "no-such-expert";
    case MapFaultKind::kNoSuchSlot:
      return "no-such-slot";
    case MapFaultKind::kExpertWithout:
      return "expert-without-slot";
    case MapFaultKind::kStale:
      return "stale";
    case MapFaultKind::kMissingReplica:
      return "missing-replica";
    case MapFaultKind::kListedTwice:
      return "listed-twice";
    case MapFaultKind::kCount:
      return "count";
    case MapFaultKind::kTokens:
      return "tokens";
    case MapFaultKind::kTokensById:
      return "tokens-by-id";
    case MapFaultKind::kOtherMap:
      return "other-map";
    case MapFaultKind::kSameRank:
      return "same-rank";
  }
  return "";
}

std::vector<MapFault> check_maps(const ExpertMaps& maps) { return Check(maps).run(); }

std::optional<MapFault> compare_maps(const ExpertMaps& maps, const ExpertMaps& other,
                                     std::string_view other_name) {
  const std::vector<int64_t>& mine = maps.slot_to_expert;
  const std::vector<int64_t>& others = other.slot_to_expert;
  if (mine.size() != others.size()) {
    return MapFault{MapFaultKind::kLength, 1,
                    fmt::format("expected {} slots as in {}, found {}", others.size(), other_name,
                                mine.size())};
  }
  std::optional<MapFault> fault;
  for (size_t slot = 0; slot < mine.size(); ++slot) {
    if (mine[slot] == others[slot]) continue;
    if (fault) {
      ++fault->number;
      continue;
    }
    fault = {MapFaultKind::kOtherMap, 1,
             fmt::format("slot {}: {} here, {} in {}: the ranks do not use the same map", slot,
                         mine[slot], others[slot], other_name)};
  }
  return fault;
}

}  // namespace wideep::balance
