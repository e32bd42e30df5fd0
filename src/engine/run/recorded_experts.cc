// SPDX-License-Identifier: Apache-2.0
//
// What ranks send is kept as it came; numbers of slots are given when the files are written,
// because only then it is known how many slots a rank has had at most.
#include "run/recorded_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/try.h"

namespace wideep::run {
namespace {

bool has_tokens(const engine::LayerRecord& layer) {
  return std::ranges::any_of(layer.sent, [](int32_t pairs) { return pairs > 0; });
}

// The numbers under which iterations are written. Readers of the format, TensorRT-LLM's too, want
// numbers that follow each other, and that are no larger than an int.
struct WrittenNumbers {
  int first = 0;
  std::string own;  // "140-145,150": the iterations' own numbers, where these are others
};

WrittenNumbers written_numbers(const std::vector<int64_t>& own) {
  const auto count = static_cast<int64_t>(own.size());
  WrittenNumbers written;
  if (own.front() < std::numeric_limits<int>::max() - count) {
    written.first = static_cast<int>(own.front());
  }
  if (own.back() == written.first + count - 1) return written;
  for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
    for (end = begin + 1; end < own.size() && own[end] == own[end - 1] + 1; ++end) {
    }
    written.own += fmt::format("{}{}", written.own.empty() ? "" : ",", own[begin]);
    if (end > begin + 1) written.own += fmt::format("-{}", own[end - 1]);
  }
  return written;
}

}  // namespace

// A rank that was not there has had no tokens: zeros.
bool RecordedExperts::add(const Iteration& iteration, Taken taken) {
  if (taken != Taken::kAll && std::ranges::none_of(iteration.ranks, [](const auto& rank) {
        return rank.records_experts;
      })) {
    return false;
  }
  const auto num_experts = static_cast<size_t>(ranks_.statistics.num_experts);
  Kept kept{.number = iteration.ranks[0].iteration,
            .experts = {},
            .slots = {},
            .members = iteration.members};
  for (const ExpertRanks::Rank& rank : ranks_.ranks) {
    kept.experts.emplace_back(rank.moe_layers.size(), std::vector<int32_t>(num_experts));
    kept.slots.emplace_back(rank.moe_layers.size());
  }
  bool any = false;
  for (size_t i = 0; i < iteration.ranks.size(); ++i) {
    const auto rank = static_cast<size_t>(iteration.rank(i));
    const std::vector<engine::LayerRecord>& layers = iteration.ranks[i].layers;
    WIDEEP_CHECK_EQ(kept.experts[rank].size(), layers.size());
    const bool takes = taken == Taken::kAll || iteration.ranks[i].records_experts;
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      if (takes && !layers[layer].counts.empty()) {
        kept.experts[rank][layer] = layers[layer].counts;
        kept.slots[rank][layer] = layers[layer].slot_counts;
        any = true;
      } else if (taken != Taken::kAskedOrIdle || has_tokens(layers[layer])) {
        return false;
      }
    }
  }
  if (any) iterations_.push_back(std::move(kept));
  return any;
}

// num_slots() is 0 if no slots were counted.
RecordedExperts::SlotNumbers RecordedExperts::slot_numbers() const {
  SlotNumbers numbers{.groups = ranks_.stage_size / ranks_.dispatch_ranks,
                      .owners = ranks_.dispatch_ranks / ranks_.num_slices};
  for (const Kept& kept : iterations_) {
    const int owners =
        kept.members.empty() ? numbers.owners : static_cast<int>(kept.members.size());
    for (const auto& rank : kept.slots) {
      for (const std::vector<int32_t>& row : rank) {
        numbers.per_rank = std::max(numbers.per_rank, static_cast<int>(row.size()) / owners);
      }
    }
  }
  return numbers;
}

// Own slots of a rank are its first numbers, borrowed ones its last.
std::vector<int64_t> RecordedExperts::slots_in_place(const Kept& kept, size_t rank, size_t layer,
                                                     const SlotNumbers& numbers) const {
  std::vector<int64_t> row(static_cast<size_t>(numbers.num_slots()));
  const std::vector<int32_t>& counts = kept.slots[rank][layer];
  if (counts.empty()) return row;
  const int owners = kept.members.empty() ? numbers.owners : static_cast<int>(kept.members.size());
  const int per_rank = static_cast<int>(counts.size()) / owners;
  const int own = per_rank - ranks_.borrowed_slots;
  const int group = static_cast<int>(rank) % ranks_.stage_size / ranks_.dispatch_ranks;
  for (int owner = 0; owner < owners; ++owner) {
    const int whole = kept.members.empty() ? owner : kept.members[static_cast<size_t>(owner)];
    const int first = (group * numbers.owners + whole) * numbers.per_rank;
    for (int slot = 0; slot < per_rank; ++slot) {
      const int place = slot < own ? slot : numbers.per_rank - per_rank + slot;
      row[static_cast<size_t>(first + place)] =
          counts[static_cast<size_t>(owner * per_rank + slot)];
    }
  }
  return row;
}

// row_of(kept, rank, layer): the counts of that row in the file.
template <typename RowOf>
Status RecordedExperts::write_counts(const std::string& directory,
                                     const recordings::StatisticsShape& shape, int first,
                                     const RowOf& row_of) const {
  std::optional<recordings::StatisticsWriter> last;
  for (size_t rank = 0; rank < ranks_.ranks.size(); ++rank) {
    const std::vector<int>& layers = ranks_.ranks[rank].moe_layers;
    if (layers.empty()) continue;
    recordings::StatisticsWriter& writer = last.emplace(directory, ranks_.ranks[rank].file, shape);
    int number = first;
    for (const Kept& kept : iterations_) {
      for (size_t i = 0; i < layers.size(); ++i) {
        writer.add(number, layers[i], row_of(kept, rank, i));
      }
      ++number;
    }
    WIDEEP_TRY(writer.write_counts());
  }
  return last ? last->write_meta_info() : Status();
}

// The experts' meta_info.json is the last file of all: who finds it after the death of the process
// that has written it need not write again (StatisticsRecorder).
Status RecordedExperts::write(const std::string& directory) const {
  std::vector<int64_t> own;
  for (const Kept& each : iterations_) own.push_back(each.number);
  const WrittenNumbers written = written_numbers(own);
  recordings::StatisticsShape shape = ranks_.statistics;
  shape.recorded_iterations = written.own;
  const SlotNumbers numbers = slot_numbers();
  if (numbers.num_slots() > 0) {
    recordings::StatisticsShape slots = shape;
    slots.slots = recordings::SlotLayout{.num_ranks = numbers.groups * numbers.owners,
                                         .borrowed_per_rank = ranks_.borrowed_slots,
                                         .num_logical_experts = shape.num_experts};
    slots.num_experts = numbers.num_slots();
    WIDEEP_TRY(write_counts(fmt::format("{}/{}", directory, recordings::kSlotsFolder), slots,
                            written.first, [&](const Kept& kept, size_t rank, size_t layer) {
                              return slots_in_place(kept, rank, layer, numbers);
                            }));
  }
  return write_counts(directory, shape, written.first,
                      [](const Kept& kept, size_t rank, size_t layer) {
                        const std::vector<int32_t>& row = kept.experts[rank][layer];
                        return std::vector<int64_t>(row.begin(), row.end());
                      });
}

}  // namespace wideep::run
