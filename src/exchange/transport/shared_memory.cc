// SPDX-License-Identifier: Apache-2.0
#include "transport/shared_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/try.h"

namespace wideep::transport {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kNumKinds = static_cast<size_t>(Group::kCount);
constexpr size_t kNumChannels = static_cast<size_t>(Channel::kCount);

size_t round_to(size_t unit, size_t bytes) { return (bytes + unit - 1) / unit * unit; }
size_t round_to_page(size_t bytes) { return round_to(kPageBytes, bytes); }

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create(int num_ranks, size_t segment_bytes,
                                                           const base::MakeSharedBytes& make) {
  WIDEEP_CHECK_GE(num_ranks, 1);
  std::shared_ptr<SharedMemory> memory(new SharedMemory());
  const size_t ranks = static_cast<size_t>(num_ranks);
  memory->num_ranks_ = num_ranks;
  memory->segment_bytes_ = round_to_page(segment_bytes);
  memory->words_offset_ = round_to_page(sizeof(ControlPage));
  memory->flags_offset_ =
      memory->words_offset_ + round_to_page(kNumKinds * ranks * 2 * sizeof(AgreedWords));
  memory->flag_stride_ = round_to(alignof(Flag), Flag::kBytes + 2 * (ranks - 1) * sizeof(uint32_t));
  memory->segments_offset_ = memory->flags_offset_ +
                             round_to_page(kNumKinds * kNumChannels * ranks * memory->flag_stride_);
  size_t total_bytes = 0;
  if (__builtin_mul_overflow(ranks, memory->segment_bytes_, &total_bytes) ||
      __builtin_add_overflow(total_bytes, memory->segments_offset_, &total_bytes)) {
    return failed(fmt::format("shared memory: cannot map {} segments of {} bytes", ranks,
                              memory->segment_bytes_));
  }
  WIDEEP_TRY_ASSIGN(memory->bytes_, make("shared memory", total_bytes, base::SharedPages::kNormal));
  // Fresh pages are zero, the initial state of every atomic here. Nothing may be written: where
  // ranks map the memory one after another, the first may use it already.
  return memory;
}

std::byte* SharedMemory::segment(int rank) const {
  return bytes_.data() + segments_offset_ + static_cast<size_t>(rank) * segment_bytes_;
}

AgreedWords& SharedMemory::agreed_words(Group kind, int rank, uint32_t parity) const {
  auto* words = reinterpret_cast<AgreedWords*>(bytes_.data() + words_offset_);
  const size_t row =
      static_cast<size_t>(kind) * static_cast<size_t>(num_ranks_) + static_cast<size_t>(rank);
  return words[2 * row + (parity & 1)];
}

void SharedMemory::fail(const Status& status, int rank) const {
  // One rank wins the right to write the text.
  if (!status.ok() && control().failure.claimed.exchange(1) == 0) publish(status, rank);
}

// Should the rank that has claimed it be writing just now, the text may be a mixture of both: each
// ends with a zero, so that one does.
void SharedMemory::fail_for_all(const Status& status) const {
  const Failure& failure = control().failure;
  if (control().failure.claimed.exchange(1) == 0 || failure.code.load() == 0) publish(status, -1);
}

// The release store of the code publishes the text: a reader that sees a code (acquire) sees all of
// it.
void SharedMemory::publish(const Status& status, int rank) const {
  Failure& failure = control().failure;
  const size_t bytes = std::min(status.message().size(), Failure::kTextBytes - 1);
  std::memcpy(failure.text, status.message().data(), bytes);
  failure.text[bytes] = '\0';
  failure.rank.store(rank);
  failure.code.store(1 + static_cast<uint32_t>(status.code()), std::memory_order_release);
}

void SharedMemory::clear() const {
  std::memset(bytes_.data() + words_offset_, 0, segments_offset_ - words_offset_);
  ControlPage& page = control();
  page.failure.code.store(0);
  page.failure.claimed.store(0);
  page.failure.rank.store(-1);
  page.change_requested.store(0);
}

Status SharedMemory::failure() const {
  const Failure& failure = control().failure;
  const uint32_t code = failure.code.load(std::memory_order_acquire);
  if (code == 0) return {};
  return {static_cast<StatusCode>(code - 1), failure.text};
}

}  // namespace wideep::transport
