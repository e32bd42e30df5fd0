// SPDX-License-Identifier: Apache-2.0
//
// Whose memory is whose: the policy says which experts are resident, and believes an expert to be so
// from the moment when it is ordered. So never more records are needed than it has, and those that
// are kept for experts in passing. An expert that leaves while it is still being read gives its
// record back when the read has ended; whoever waits for memory waits until then.
#include "model/parts/resident_experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/cpu_time.h"
#include "base/log.h"
#include "base/numa.h"
#include "base/try.h"
#include "model/model_forms.h"

namespace wideep::model {

using packed::kPieceBytes;
using residency::Demand;
using residency::ExpertPlace;
using residency::ResidencyCounts;

namespace {

// What a disk needs in flight to be busy.
constexpr size_t kPassingBytes = size_t{16} << 20;
// In the background: enough for the reader's share of its depth.
constexpr int kFillsAtOnce = 4;
// With a disk that has been late in this iteration.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

// ---- opening ----

ResidentExperts::ResidentExperts(ExpertSlots& slots, const ResidentOptions& options)
    : slots_(slots),
      options_(options),
      layers_(slots.layers()),
      record_bytes_(weights::DirectInput::in_blocks(slots.shape().record_bytes())) {}

Result<std::unique_ptr<ResidentExperts>> ResidentExperts::open(const packed::PackedFile& file,
                                                               ExpertSlots& slots,
                                                               const ResidentOptions& options) {
  std::unique_ptr<ResidentExperts> experts(new ResidentExperts(slots, options));
  WIDEEP_TRY(experts->find_parts(file));
  WIDEEP_TRY(experts->divide_memory());
  WIDEEP_TRY_ASSIGN(experts->reader_, weights::RecordReader::open(
                                          file.records_path(), {.processors = options.processors,
                                                                .memory = experts->memory_,
                                                                .read_piece = options.read_piece}));
  return experts;
}

Status ResidentExperts::find_parts(const packed::PackedFile& file) {
  for (const int layer : layers_) {
    for (const int32_t expert : slots_.experts(layer)) {
      num_experts_ = std::max(num_experts_, expert + 1);
    }
  }
  places_.resize(layers_.size() * static_cast<size_t>(num_experts_));
  totals_.resize(layers_.size());
  for (size_t layer_idx = 0; layer_idx < layers_.size(); ++layer_idx) {
    const int layer = layers_[layer_idx];
    for (const int32_t expert : slots_.experts(layer)) {
      if (expert == balance::kUnusedSlot) continue;
      const std::string part =
          weights::expert_part(slots_.shape(), expert_prefix(layer, expert), slots_.slice());
      const packed::Part* const found = file.find(part);
      if (found == nullptr || found->bytes != slots_.shape().record_bytes()) {
        return invalid_input(
            fmt::format("{}: has no part '{}' of {} bytes; remove the directory, "
                        "and the weights are packed again",
                        file.directory(), part, slots_.shape().record_bytes()));
      }
      place(index_of({static_cast<int>(layer_idx), expert})).part = found;
    }
  }
  return {};
}

Status ResidentExperts::divide_memory() {
  residency::ResidencyShape shape{.num_layers = static_cast<int>(layers_.size()),
                                  .num_experts = num_experts_,
                                  .num_records = 0,
                                  .owned = {}};
  for (const Place& each : places_) shape.owned.push_back(each.part != nullptr ? 1 : 0);
  const auto num_owned = static_cast<size_t>(std::count(shape.owned.begin(), shape.owned.end(), 1));
  const size_t num_records = std::min(options_.memory / record_bytes_, num_owned);
  if (num_records < std::min<size_t>(num_owned, 2)) {
    return invalid_input(fmt::format(
        "memory for experts: expected at least {} for 2 of the {} experts of a rank, found {}",
        base::byte_size(2 * record_bytes_), num_owned, base::byte_size(options_.memory)));
  }
  if (num_records < num_owned) {
    // At least two: half of them are for what is read ahead.
    const size_t passing = std::max<size_t>(2, (kPassingBytes + record_bytes_ - 1) / record_bytes_);
    num_passing_ = static_cast<int>(std::min(passing, std::max(size_t{1}, num_records / 4)));
  }
  shape.num_records = static_cast<int>(num_records) - num_passing_;
  // A block more: reads need memory at multiples of blocks.
  constexpr size_t kBlock = weights::DirectInput::kBlockBytes;
  try {
    memory_ = std::make_shared<base::AlignedBytes>(num_records * record_bytes_ + kBlock);
  } catch (const std::bad_alloc&) {
    return failed(fmt::format("memory for experts: there is no room for {}",
                              base::byte_size(num_records * record_bytes_)));
  }
  base::keep_near_this_thread(memory_->data(), memory_->size());
  const auto address = reinterpret_cast<uintptr_t>(memory_->data());
  std::byte* const first = memory_->data() + (kBlock - address % kBlock) % kBlock;
  for (size_t i = 0; i < num_records; ++i) records_.push_back(first + i * record_bytes_);
  writes_.resize(num_records);
  held_.resize(num_records);
  for (size_t i = num_records; i > 0; --i) free_.push_back(static_cast<int>(i - 1));
  counts_.resize(static_cast<size_t>(num_experts_));
  policy_ = std::make_unique<residency::ExpertResidency>(std::move(shape), options_.policy);
  if (options_.popularity) {
    // As much as windows count in the long run.
    const residency::ResidencyOptions& policy = options_.policy;
    const double tokens = static_cast<double>(policy.window_tokens) / (1.0 - policy.decay);
    std::vector<double> load = options_.popularity->of(layers_, num_experts_);
    for (double& each : load) each *= tokens;
    policy_->start_from(load, tokens);
  }
  return {};
}

int ResidentExperts::num_owned() const {
  return static_cast<int>(std::count_if(places_.begin(), places_.end(),
                                        [](const Place& each) { return each.part != nullptr; }));
}

std::string ResidentExperts::description() const {
  return fmt::format("{} of {} experts in memory ({}), {} of them in passing; {}", records_.size(),
                     num_owned(), base::byte_size(records_.size() * record_bytes_), num_passing_,
                     reader_->description());
}

residency::Popularity ResidentExperts::popularity() const {
  residency::Popularity popularity;
  for (size_t layer_idx = 0; layer_idx < layers_.size(); ++layer_idx) {
    std::map<int, double>& shares = popularity.shares[layers_[layer_idx]];
    for (int expert = 0; expert < num_experts_; ++expert) {
      const ExpertPlace at{static_cast<int>(layer_idx), expert};
      if (place_of(at).part != nullptr) shares[expert] = policy_->popularity(at);
    }
  }
  return popularity;
}

std::span<const ResidencyCounts> ResidentExperts::counts() {
  for (size_t i = 0; i < totals_.size(); ++i) {
    totals_[i].num_resident = policy_->num_resident(static_cast<int>(i));
    totals_[i].came = policy_->num_came(static_cast<int>(i));
  }
  return totals_;
}

// ---- a call ----

void ResidentExperts::choose(const Call& call, std::span<const int> rows_of_slots) {
  while (const auto completion = reader_->poll()) take(*completion);
  begin_call(call, rows_of_slots);
  for (const Demand& demand : policy_->visit(layer_idx_, std::span<const int32_t>(counts_))) {
    take_demand(demand);
  }
  ResidencyCounts& totals = totals_[static_cast<size_t>(layer_idx_)];
  for (int expert = 0; expert < num_experts_; ++expert) {
    if (counts_[static_cast<size_t>(expert)] == 0) continue;
    const int index = index_of({layer_idx_, expert});
    const bool is_here = place(index).state == State::kHere;
    ++totals.chosen;
    if (place(index).is_expected) {
      ++totals.expected;
    } else if (is_here) {
      ++totals.hits;
    }
    if (!is_here) await_place(index);
  }
  const std::span<const int32_t> experts = slots_.experts(call.layer);
  present_.clear();
  for (size_t slot = 0; slot < rows_of_slots.size(); ++slot) {
    if (rows_of_slots[slot] == 0) continue;
    const Place& its = place(index_of({layer_idx_, experts[slot]}));
    if (its.state == State::kHere) present_.push_back(static_cast<int>(slot));
  }
  settle_expected();
  order_queued();
}

// What was chosen is computed as all others, and what was not makes room.
void ResidentExperts::settle_expected() {
  read_ahead_.learn(layer_idx_, counts_);
  for (const int index : std::exchange(expected_, {})) {
    Place& its = place(index);
    if (!std::exchange(its.is_expected, false)) continue;  // it could not be read
    const bool is_chosen = index / num_experts_ == layer_idx_ &&
                           counts_[static_cast<size_t>(index % num_experts_)] > 0;
    if (is_chosen) {
      if (its.state == State::kHere) computed_.push_back(index);
    } else if (!its.stays) {
      ++totals_[static_cast<size_t>(index / num_experts_)].read_in_vain;
      its.state == State::kHere ? evict(index) : cancel(index);
    }
  }
}

// If nobody has begun to read it; else it leaves when it has been read, as one of several pieces
// does: without some of them the others would be no record.
void ResidentExperts::cancel(int index) {
  Place& its = place(index);
  if (its.part->num_pieces() > 1) return;
  const auto read =
      std::ranges::find(reads_, index, [](const auto& each) { return each.second.place; });
  if (read == reads_.end() || !reader_->cancel(read->first)) return;
  reads_.erase(read);
  its.pieces_left = 0;
  its.state = State::kAbsent;
  free_record(std::exchange(its.record, -1));
}

bool ResidentExperts::looks_ahead() { return num_passing_ > 1 && read_ahead_.is_due(); }

void ResidentExperts::expect(int layer, std::span<const float> weights) {
  const auto layer_idx =
      static_cast<int>(std::lower_bound(layers_.begin(), layers_.end(), layer) - layers_.begin());
  // Those behind the last one of this rank are other ranks'.
  absent_weights_.assign(weights.begin(), weights.begin() + num_experts_);
  for (int expert = 0; expert < num_experts_; ++expert) {
    const Place& its = place_of({layer_idx, expert});
    const bool is_absent = its.part != nullptr && its.state == State::kAbsent;
    if (!is_absent || its.was_lost) absent_weights_[static_cast<size_t>(expert)] = 0.0F;
  }
  read_ahead_.guess(layer_idx, absent_weights_);
  expected_layer_idx_ = layer_idx;
  if (num_awaited_ == 0) order_expected();
}

// Only while nobody waits for the disk, and before the layer is called.
void ResidentExperts::order_expected() {
  for (const int expert : read_ahead_.worth_reading()) {
    const bool has_room = static_cast<int>(expected_.size()) < num_passing_ / 2 && !free_.empty();
    if (!has_room) return;
    const int index = index_of({expected_layer_idx_, expert});
    if (place(index).state != State::kAbsent || place(index).was_lost) continue;
    place(index).is_expected = true;
    expected_.push_back(index);
    order(index, false);
  }
}

void ResidentExperts::begin_call(const Call& call, std::span<const int> rows_of_slots) {
  WIDEEP_CHECK(queued_.empty() && num_awaited_ == 0 && computed_.empty());
  const auto layer = std::lower_bound(layers_.begin(), layers_.end(), call.layer);
  layer_idx_ = static_cast<int>(layer - layers_.begin());
  if (std::exchange(iteration_, call.iteration) != call.iteration) {
    policy_->begin_iteration(std::max<int64_t>(call.num_tokens, 1));
    is_disk_late_ = false;
  }
  rows_.assign(rows_of_slots.begin(), rows_of_slots.end());
  std::fill(counts_.begin(), counts_.end(), 0);
  const std::span<const int32_t> experts = slots_.experts(call.layer);
  for (size_t slot = 0; slot < rows_of_slots.size(); ++slot) {
    if (rows_of_slots[slot] > 0) counts_[static_cast<size_t>(experts[slot])] += rows_of_slots[slot];
  }
}

void ResidentExperts::take_demand(const Demand& demand) {
  if (demand.leaves) evict(index_of(*demand.leaves));
  const int index = index_of({layer_idx_, demand.expert});
  place(index).stays = demand.stays;
  if (place(index).state != State::kAbsent) return;  // it had left while it was being read
  place(index).state = State::kQueued;
  queued_.push_back(index);
}

void ResidentExperts::evict(int index) {
  Place& its = place(index);
  its.stays = false;
  if (its.state != State::kHere) return;  // end_read() frees its record
  its.state = State::kAbsent;
  its.is_expected = false;
  set_slots(index, nullptr);
  free_record(std::exchange(its.record, -1));
}

void ResidentExperts::await_place(int index) {
  Place& its = place(index);
  its.is_awaited = true;
  ++num_awaited_;
  if (its.state != State::kReading) return;
  for (const auto& [ticket, read] : reads_) {
    if (read.place == index) reader_->make_urgent(ticket);
  }
}

std::span<const int> ResidentExperts::await() {
  release_passed();
  arrived_.clear();
  order_queued();
  const int64_t begin = base::wall_ns();
  while (arrived_.empty() && num_awaited_ > 0) {
    if (const auto completion = reader_->wait(deadline_ns_)) {
      take(*completion);
    } else {
      lose_queued();
    }
    order_queued();
  }
  while (const auto completion = reader_->poll()) take(*completion);
  totals_[static_cast<size_t>(layer_idx_)].waited_ns += base::wall_ns() - begin;
  if (num_awaited_ == 0) order_expected();
  if (arrived_.empty()) fill_ahead();
  return arrived_;
}

void ResidentExperts::release_passed() {
  for (const int index : std::exchange(computed_, {})) {
    if (!place(index).stays) evict(index);
  }
}

// ---- reading ----

void ResidentExperts::order_queued() {
  while (!queued_.empty() && !free_.empty()) {
    order(queued_.front(), true);
    queued_.pop_front();
  }
}

void ResidentExperts::order(int index, bool is_urgent) {
  Place& its = place(index);
  its.state = State::kReading;
  its.record = free_.back();
  free_.pop_back();
  held_[static_cast<size_t>(its.record)] = true;
  its.is_whole = true;
  its.is_fill = false;
  its.pieces_left = its.part->num_pieces();
  const auto patience = is_disk_late_ ? kPatience : options_.deadline;
  const int64_t deadline_ns = base::wall_ns() + std::chrono::nanoseconds(patience).count();
  deadline_ns_ = std::max(deadline_ns_, deadline_ns);
  for (int piece = 0; piece < its.part->num_pieces(); ++piece) {
    const uint64_t at = static_cast<uint64_t>(piece) * kPieceBytes;
    const weights::RecordOrder order{.ticket = num_tickets_++,
                                     .offset = its.part->offset + at,
                                     .into = records_[static_cast<size_t>(its.record)] + at,
                                     .bytes = its.part->piece_bytes(piece),
                                     .hash = its.part->hashes[static_cast<size_t>(piece)],
                                     .is_urgent = is_urgent,
                                     .deadline_ns = deadline_ns};
    reads_[order.ticket] = {.place = index, .record = its.record};
    reader_->submit({&order, 1});
  }
}

// What was popular in the last run, as long as memory is free.
void ResidentExperts::fill_ahead() {
  while (num_fills_<kFillsAtOnce&& static_cast<int>(free_.size())> num_passing_) {
    const auto next = policy_->next_to_fill();
    if (!next) return;
    const int index = index_of(*next);
    policy_->fill(*next);
    place(index).stays = true;
    place(index).is_expected = false;  // it is no guess any more
    if (place(index).state != State::kAbsent) continue;
    order(index, false);
    place(index).is_fill = true;
    ++num_fills_;
  }
}

void ResidentExperts::take(const weights::Completion& completion) {
  const auto found = reads_.find(completion.ticket);
  const Read read = found->second;
  if (completion.end == weights::RecordEnd::kReturned) {
    reads_.erase(found);
    --writes_[static_cast<size_t>(read.record)];
    if (!held_[static_cast<size_t>(read.record)]) free_record(read.record);
    return;
  }
  is_disk_late_ |= completion.end == weights::RecordEnd::kLate;
  if (completion.is_lent) {
    ++writes_[static_cast<size_t>(read.record)];
    found->second.place = -1;
  } else {
    reads_.erase(found);
  }
  Place& its = place(read.place);
  if (const Status status = reader_->status_of(completion); !status.ok()) {
    its.is_whole = false;
    if (!std::exchange(its.was_lost, true)) {
      log::error("expert {} of layer {}: {}", read.place % num_experts_,
                 layers_[static_cast<size_t>(read.place / num_experts_)], status.message());
    }
  }
  if (--its.pieces_left == 0) end_read(read.place);
}

void ResidentExperts::end_read(int index) {
  Place& its = place(index);
  num_fills_ -= its.is_fill ? 1 : 0;
  if (!its.is_whole) return lose(index);
  its.state = State::kHere;
  its.was_lost = false;
  if (!its.is_awaited && !its.stays && !its.is_expected) return evict(index);  // it has left
  set_slots(index, records_[static_cast<size_t>(its.record)]);
  if (its.is_awaited) report(index);
}

// Its rows cannot be computed.
void ResidentExperts::lose(int index) {
  Place& its = place(index);
  if (std::exchange(its.stays, false)) {
    policy_->lose({index / num_experts_, index % num_experts_});
  }
  its.state = State::kAbsent;
  its.is_expected = false;
  if (its.record >= 0) free_record(std::exchange(its.record, -1));
  if (!its.is_awaited) return;
  ++totals_[static_cast<size_t>(layer_idx_)].lost;
  report(index);
}

// No memory has become free in time.
void ResidentExperts::lose_queued() {
  const std::deque<int> lost = std::exchange(queued_, {});
  if (lost.empty()) return;
  if (!std::exchange(is_disk_late_, true)) {
    log::error(
        "{} experts of layer {}: no memory has become free in {} ms: the disk does not answer",
        lost.size(), layers_[static_cast<size_t>(layer_idx_)], options_.deadline.count());
  }
  for (const int index : lost) lose(index);
}

// Unless late reads may still write to it.
void ResidentExperts::free_record(int record) {
  held_[static_cast<size_t>(record)] = false;
  if (writes_[static_cast<size_t>(record)] == 0) free_.push_back(record);
}

void ResidentExperts::set_slots(int index, std::byte* record) {
  const int layer = layers_[static_cast<size_t>(index / num_experts_)];
  const std::span<const int32_t> experts = slots_.experts(layer);
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    if (experts[slot] == index % num_experts_) {
      slots_.exchange(layer, static_cast<int>(slot), experts[slot], record);
    }
  }
}

// To await().
void ResidentExperts::report(int index) {
  place(index).is_awaited = false;
  --num_awaited_;
  computed_.push_back(index);
  const std::span<const int32_t> experts = slots_.experts(layers_[static_cast<size_t>(layer_idx_)]);
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    if (experts[slot] != index % num_experts_ || rows_[slot] == 0) continue;
    arrived_.push_back(static_cast<int>(slot));
  }
}

}  // namespace wideep::model
