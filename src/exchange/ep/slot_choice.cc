// SPDX-License-Identifier: Apache-2.0
//
// Choosing must cost next to nothing per (token, expert), so all the work is in the split. It
// gives each expert a run: so many tokens go to this slot, then to the next replica in the list.
// An expert with one replica has a run that never ends, and the loop has one branch for all. Loans
// add replicas for one call, behind the layer's own list, and return_loans() cuts them off again.
//
// All ranks round the shares of all experts, also of those that they have no tokens of: what is
// rounded on one rank's account changes the next expert's rounding, and quotas must be the same
// everywhere.
#include "ep/slot_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace wideep::ep {

SlotChooser::SlotChooser(const DispatchShape& shape, int rank)
    : shape_(shape), me_{rank, shape.ep_size / shape.num_nodes}, sharing_(shape) {
  load_.resize(static_cast<size_t>(shape.num_experts));
  slot_shares_.resize(static_cast<size_t>(shape.num_owners() * shape.slots_per_rank));
  borrowed_.assign(static_cast<size_t>(shape.borrowed_slots), balance::kUnusedSlot);
  counts_.resize(static_cast<size_t>(shape.ep_size));
  rank_excess_.resize(static_cast<size_t>(shape.ep_size));
}

// ---- placements ----

void SlotChooser::set_placement(int layer, const balance::Placement& placement,
                                std::span<const double> shares) {
  WIDEEP_CHECK_EQ(placement.slot_to_expert.size(), slot_shares_.size());
  WIDEEP_CHECK_EQ(placement.num_experts, shape_.num_experts);
  Layer& entry = layers_[layer];
  list_replicas(placement, &entry);
  if (entry.spread.empty()) return;
  set_parts(shares, &entry);
  entry.resplitter.reset(placement);
}

// Lists the replicas of experts that have several, ordered by expert, then by slot (a counting
// sort). The runs first count replicas, then hold the index of each expert's next replica.
void SlotChooser::list_replicas(const balance::Placement& placement, Layer* layer) {
  constexpr Run kUnseen{.left = 0, .slot = -1, .replica = -1};
  layer->runs.assign(static_cast<size_t>(placement.num_experts), kUnseen);
  for (const int32_t expert : placement.slot_to_expert) {
    if (expert != balance::kUnusedSlot) ++layer->runs[expert].left;
  }
  layer->has_one.assign(static_cast<size_t>(placement.num_experts), 0);
  layer->spread.clear();
  layer->lent.clear();
  int32_t num_replicas = 0;
  for (int32_t expert = 0; expert < placement.num_experts; ++expert) {
    Run& run = layer->runs[expert];
    if (run.left == 1) {
      layer->has_one[expert] = 1;
      run.left = std::numeric_limits<int64_t>::max();  // so choose() never calls next_run
      continue;
    }
    const auto end = static_cast<int32_t>(num_replicas + run.left);
    layer->spread.push_back({expert, num_replicas, end});
    run.left = 0;
    run.replica = num_replicas;
    num_replicas = end;
  }
  layer->replica_slots.resize(static_cast<size_t>(num_replicas));
  layer->replica_ranks.resize(static_cast<size_t>(num_replicas));
  for (int32_t slot = 0; slot < placement.num_slots(); ++slot) {
    const int32_t expert = placement.slot_to_expert[slot];
    if (expert == balance::kUnusedSlot) continue;
    Run& run = layer->runs[expert];
    const int rank = placement.rank_of_slot(slot);
    run.slot = rank * shape_.local_slots() + slot % placement.slots_per_rank();
    if (run.replica < 0) continue;
    layer->replica_slots[run.replica] = run.slot;
    layer->replica_ranks[run.replica++] = rank;
  }
}

void SlotChooser::set_parts(std::span<const double> shares, Layer* layer) {
  const size_t num_replicas = layer->replica_slots.size();
  layer->row.resize(num_replicas);
  layer->quotas.resize(num_replicas);
  layer->parts.resize(num_replicas);
  layer->credit.assign(num_replicas, 0);
  for (const SpreadExpert& spread : layer->spread) {
    const size_t begin = spread.begin, size = spread.end - spread.begin;
    shares_.assign(size, 1.0 / static_cast<double>(size));
    for (size_t i = 0; i < size && !shares.empty(); ++i) {
      shares_[i] = shares[placed_slot(layer->replica_slots[begin + i])];
    }
    const auto parts = std::span(layer->parts).subspan(begin, size);
    parts_of_equal_ranks(std::span(layer->replica_ranks).subspan(begin, size), parts);
    // As if this rank had already sent one token for each lower rank, so that ranks start with
    // different remainders.
    round_with_credit(me_.rank, parts, std::span(layer->credit).subspan(begin, size), quotas_);
  }
}

// Computes which part of its tokens this rank sends to each replica, assuming that all ranks have
// equally many tokens. All ranks together then meet shares_, and as few tokens as possible leave
// their rank and node. This is split_by_source with one whole token, in fixed point, on each rank.
void SlotChooser::parts_of_equal_ranks(std::span<const int32_t> replica_ranks,
                                       std::span<int64_t> parts) {
  const int64_t whole = shape_.ep_size * kWholeToken;  // one token from each rank
  int64_t left = whole;
  quotas_.resize(shares_.size());
  for (size_t i = 0; i < shares_.size(); ++i) {
    // Due to rounding, given shares may sum to a little more than 1.
    quotas_[i] = std::min(left, static_cast<int64_t>(shares_[i] * static_cast<double>(whole)));
    left -= quotas_[i];
  }
  *std::max_element(quotas_.begin(), quotas_.end()) += left;
  std::fill(counts_.begin(), counts_.end(), kWholeToken);
  split_by_source(replica_ranks, me_, counts_, quotas_, parts);
}

// ---- calls ----

void SlotChooser::split_by_counts(int layer, std::span<const int32_t> counts) {
  WIDEEP_CHECK_EQ(counts.size(), counts_.size() * load_.size());
  Layer& entry = layers_.at(layer);
  return_loans(entry);
  if (entry.spread.empty() && shape_.borrowed_slots == 0) return;
  sum_counts(counts);
  if (!entry.spread.empty()) set_quotas(entry);
  split_ = entry.spread;
  lend(entry);
  for (const SpreadExpert& spread : split_) {
    if (counts[me_.rank * load_.size() + spread.expert] > 0) split_expert(spread, counts, entry);
  }
}

void SlotChooser::sum_counts(std::span<const int32_t> counts) {
  const size_t num_experts = load_.size();
  totals_.assign(counts.begin(), counts.begin() + static_cast<ptrdiff_t>(num_experts));
  for (size_t rank = 1; rank < counts_.size(); ++rank) {
    const int32_t* row = counts.data() + rank * num_experts;
    for (size_t e = 0; e < num_experts; ++e) totals_[e] += row[e];
  }
}

// round_shares depends on rank_excess_ of the experts before. So every rank rounds all experts,
// even those of which it has no tokens: only then do all ranks get the same quotas.
void SlotChooser::set_quotas(Layer& layer) {
  std::copy(totals_.begin(), totals_.end(), load_.begin());
  layer.resplitter.resplit(load_, slot_shares_);
  std::fill(rank_excess_.begin(), rank_excess_.end(), 0.0);
  for (const SpreadExpert& spread : layer.spread) {
    const size_t begin = spread.begin, size = spread.end - spread.begin;
    const auto quotas = std::span(layer.quotas).subspan(begin, size);
    std::ranges::fill(quotas, 0);
    if (totals_[spread.expert] == 0) continue;
    shares_.resize(size);
    for (size_t i = 0; i < size; ++i) {
      shares_[i] = slot_shares_[placed_slot(layer.replica_slots[begin + i])];
    }
    round_shares(totals_[spread.expert], shares_,
                 std::span(std::as_const(layer).replica_ranks).subspan(begin, size), rank_excess_,
                 quotas);
  }
}

void SlotChooser::split_expert(const SpreadExpert& spread, std::span<const int32_t> counts,
                               Layer& layer) {
  const size_t begin = spread.begin, size = spread.end - spread.begin;
  start_run(spread, layer);
  for (size_t rank = 0; rank < counts_.size(); ++rank) {
    counts_[rank] = counts[rank * load_.size() + spread.expert];
  }
  split_by_source(std::span(std::as_const(layer).replica_ranks).subspan(begin, size), me_, counts_,
                  std::span(layer.quotas).subspan(begin, size),
                  std::span(layer.row).subspan(begin, size));
}

// ---- loans, for the time of a call ----

void SlotChooser::return_loans(Layer& layer) {
  for (const auto& [expert, run] : layer.lent) layer.runs[expert] = run;
  layer.lent.clear();
  const size_t num_replicas = layer.spread.empty() ? 0 : layer.spread.back().end;
  layer.replica_slots.resize(num_replicas);
  layer.replica_ranks.resize(num_replicas);
  layer.quotas.resize(num_replicas);
  layer.row.resize(num_replicas);
  std::ranges::fill(borrowed_, balance::kUnusedSlot);
}

// Replaces experts of split_ that are lent by those with the borrowed slots.
void SlotChooser::lend(Layer& layer) {
  const int64_t all = std::accumulate(totals_.begin(), totals_.end(), int64_t{0});
  if (!RowSharing::pays(shape_, all)) return;
  list_rows(layer);
  loans_.clear();
  counts_.assign(counts_.size(), 0);  // of borrowed slots
  for (const Loan& loan : sharing_.share(rows_)) {
    const auto index = static_cast<int32_t>(counts_[static_cast<size_t>(loan.to)]++);
    loans_.emplace_back(loan, loan.to * shape_.local_slots() + shape_.slots_per_rank + index);
    if (loan.to == me_.rank) borrowed_[static_cast<size_t>(index)] = loan.expert;
  }
  std::ranges::sort(loans_, {},
                    [](const auto& each) { return std::pair(each.first.expert, each.second); });
  for (auto first = loans_.begin(); first != loans_.end();) {
    const auto end = std::find_if(first, loans_.end(), [&](const auto& each) {
      return each.first.expert != first->first.expert;
    });
    apply_loans({first, end}, layer);
    first = end;
  }
}

// The rows of all ranks, for RowSharing.
void SlotChooser::list_rows(const Layer& layer) {
  rows_.clear();
  for (size_t e = 0; e < totals_.size(); ++e) {
    if (!layer.has_one[e] || totals_[e] == 0) continue;
    const int32_t rank = layer.runs[e].slot / shape_.local_slots();
    rows_.push_back({static_cast<int32_t>(e), rank, totals_[e]});
  }
  for (const SpreadExpert& spread : layer.spread) {
    for (int32_t i = spread.begin; i < spread.end; ++i) {
      // Replicas of one rank are adjacent.
      const int32_t rank = layer.replica_ranks[i];
      const bool is_same = i > spread.begin && rank == layer.replica_ranks[i - 1];
      if (is_same) {
        rows_.back().rows += layer.quotas[i];
      } else {
        rows_.push_back({spread.expert, rank, layer.quotas[i]});
      }
    }
  }
}

// The loans of one expert: lists all its replicas and borrowed slots anew, by slot.
void SlotChooser::apply_loans(std::span<const std::pair<Loan, int32_t>> loans, Layer& layer) {
  const int32_t expert = loans.front().first.expert;
  std::vector<Replica>& replicas = replicas_;
  replicas.clear();
  const auto known = std::ranges::find(split_, expert, &SpreadExpert::expert);
  if (known == split_.end()) {
    const Run& run = layer.runs[expert];
    layer.lent.emplace_back(expert, run);
    replicas.push_back({run.slot, run.slot / shape_.local_slots(), totals_[expert]});
  } else {
    for (int32_t i = known->begin; i < known->end; ++i) {
      replicas.push_back({layer.replica_slots[i], layer.replica_ranks[i], layer.quotas[i]});
    }
    split_.erase(known);
  }
  for (const auto& [loan, slot] : loans) {
    int64_t left = loan.rows;
    for (Replica& each : replicas) {
      if (each.rank != loan.from || each.slot % shape_.local_slots() >= shape_.slots_per_rank) {
        continue;
      }
      const int64_t rows = std::min(left, each.quota);
      each.quota -= rows;
      left -= rows;
    }
    WIDEEP_CHECK_EQ(left, 0);
    replicas.push_back({slot, loan.to, loan.rows});
  }
  std::ranges::sort(replicas, {}, &Replica::slot);
  const auto begin = static_cast<int32_t>(layer.replica_slots.size());
  for (const Replica& each : replicas) {
    layer.replica_slots.push_back(each.slot);
    layer.replica_ranks.push_back(each.rank);
    layer.quotas.push_back(each.quota);
  }
  layer.row.resize(layer.replica_slots.size());
  split_.push_back({expert, begin, static_cast<int32_t>(layer.replica_slots.size())});
}

// ---- calls by given shares ----

void SlotChooser::split_by_given_shares(int layer, std::span<const int32_t> counts) {
  WIDEEP_CHECK_EQ(counts.size(), load_.size());
  Layer& entry = layers_.at(layer);
  return_loans(entry);
  for (const SpreadExpert& spread : entry.spread) {
    if (counts[spread.expert] == 0) continue;
    start_run(spread, entry);
    const size_t begin = spread.begin, size = spread.end - spread.begin;
    round_with_credit(counts[spread.expert], std::span(entry.parts).subspan(begin, size),
                      std::span(entry.credit).subspan(begin, size),
                      std::span(entry.row).subspan(begin, size));
  }
}

SlotChooser::ReplicaTable SlotChooser::replica_table(int layer) const {
  const Layer& entry = layers_.at(layer);
  ReplicaTable table;
  auto spread = entry.spread.begin();
  for (int32_t expert = 0; expert < shape_.num_experts; ++expert) {
    table.first.push_back(static_cast<int32_t>(table.slots.size()));
    if (spread == entry.spread.end() || spread->expert != expert) {
      table.slots.push_back(entry.runs[expert].slot);
      table.parts.push_back(kWholeToken);
      table.credit.push_back(0);
      continue;
    }
    for (int32_t i = spread->begin; i < spread->end; ++i) {
      table.slots.push_back(entry.replica_slots[i]);
      table.parts.push_back(entry.parts[i]);
      table.credit.push_back(entry.credit[i]);
    }
    ++spread;
  }
  table.first.push_back(static_cast<int32_t>(table.slots.size()));
  return table;
}

void SlotChooser::start_run(const SpreadExpert& spread, Layer& layer) {
  layer.runs[spread.expert] = {.left = 0, .slot = -1, .replica = spread.begin - 1};
}

void SlotChooser::next_run(Layer& layer, Run& run) {
  do {
    ++run.replica;
    WIDEEP_CHECK_LT(static_cast<size_t>(run.replica), layer.row.size());
    run.left = layer.row[run.replica];
  } while (run.left == 0);
  run.slot = layer.replica_slots[run.replica];
}

void SlotChooser::choose(int layer, std::span<const int32_t> experts, std::span<int32_t> slots) {
  Layer& entry = layers_.at(layer);
  Run* const runs = entry.runs.data();
  for (size_t i = 0; i < experts.size(); ++i) {
    Run& run = runs[experts[i]];
    if (run.left == 0) next_run(entry, run);
    --run.left;
    slots[i] = run.slot;
  }
}

}  // namespace wideep::ep
