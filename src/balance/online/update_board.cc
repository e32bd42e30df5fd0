// SPDX-License-Identifier: Apache-2.0
//
// The memory, in cache lines that never have two writers:
//
//   group │ posts │ balancer │ rank 0 │ rank 1 │ … │ layer 0: generation, shares, experts │ …
//
// A plan is written first and its generation after it, which is all the locking that readers need.
// A futex on the number of posts wakes the updaters of all processes; a condition variable would
// have to survive a process that dies while it holds the lock. clear() works like a sequence lock
// on `group`, for those who read counters while groups change.
#include "online/update_board.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "base/check.h"
#include "base/try.h"

namespace wideep::online {
namespace {

// Cache line: data of different writers never share one.
constexpr size_t kLine = 64;

size_t round_to_line(size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

}  // namespace

struct UpdateBoard::Header {
  alignas(kLine) std::atomic<uint32_t> group{0};  // the only line that clear() leaves
  alignas(kLine) std::atomic<uint32_t> num_posts{0};
  std::atomic<int32_t> num_ranks{0};  // 0: of the shape at first
  alignas(kLine) BalancerCounters balancer;
};

struct UpdateBoard::Layer {
  alignas(kLine) std::atomic<uint32_t> generation{0};
  bool has_shares = false;
  // Then [num_slots] double shares and [num_slots] int32 experts.
};

UpdateBoard::UpdateBoard(const BoardShape& shape)
    : shape_(shape),
      layers_offset_(round_to_line(sizeof(Header)) +
                     static_cast<size_t>(shape.num_ranks) * round_to_line(sizeof(UpdaterCounters))),
      layer_bytes_(sizeof(Layer) + round_to_line(static_cast<size_t>(shape.num_slots) *
                                                 (sizeof(double) + sizeof(int32_t)))) {}

size_t UpdateBoard::bytes_for(const BoardShape& shape) {
  const UpdateBoard board(shape);
  return board.layers_offset_ + static_cast<size_t>(shape.num_layers) * board.layer_bytes_;
}

Result<std::unique_ptr<UpdateBoard>> UpdateBoard::create(const BoardShape& shape,
                                                         const base::MakeSharedBytes& make,
                                                         size_t min_bytes) {
  std::unique_ptr<UpdateBoard> board(new UpdateBoard(shape));
  const size_t bytes = std::max(bytes_for(shape), min_bytes);
  WIDEEP_TRY_ASSIGN(board->bytes_, make("board of updates", bytes, base::SharedPages::kNormal));
  // Fresh pages are zero, which is the initial state of everything here.
  return board;
}

void UpdateBoard::reshape(const BoardShape& shape) {
  WIDEEP_CHECK_LE(bytes_for(shape), bytes_.size());
  const UpdateBoard other(shape);
  shape_ = shape;
  layers_offset_ = other.layers_offset_;
  layer_bytes_ = other.layer_bytes_;
  header().num_ranks = shape.num_ranks;
}

void UpdateBoard::clear() {
  std::atomic<uint32_t>& group = header().group;
  group.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  std::fill_n(bytes_.data() + kLine, bytes_.size() - kLine, std::byte{0});
  group.fetch_add(1, std::memory_order_release);
}

uint32_t UpdateBoard::group() const {
  std::atomic_thread_fence(std::memory_order_acquire);  // after what was read before
  return header().group.load(std::memory_order_acquire);
}

int UpdateBoard::num_ranks() const {
  const int now = header().num_ranks;
  return now > 0 ? now : shape_.num_ranks;
}

void UpdateBoard::post(int layer, std::span<const int32_t> slot_to_expert,
                       std::span<const double> shares) {
  WIDEEP_CHECK_EQ(static_cast<int>(slot_to_expert.size()), shape_.num_slots);
  std::copy(slot_to_expert.begin(), slot_to_expert.end(), slots_of(layer));
  std::copy(shares.begin(), shares.end(), shares_of(layer));
  Layer& posted = layer_at(layer);
  posted.has_shares = !shares.empty();
  // Last: an updater that reads the new generation (acquire) sees the whole plan. num_posts comes
  // after it, so that an updater that wakes up finds the new generation.
  posted.generation.fetch_add(1, std::memory_order_release);
  header().num_posts.fetch_add(1, std::memory_order_release);
  wake();
}

uint32_t UpdateBoard::generation(int layer) const {
  return layer_at(layer).generation.load(std::memory_order_acquire);
}

std::span<const int32_t> UpdateBoard::slot_to_expert(int layer) const {
  return {slots_of(layer), static_cast<size_t>(shape_.num_slots)};
}

std::span<const double> UpdateBoard::shares(int layer) const {
  const size_t count = layer_at(layer).has_shares ? static_cast<size_t>(shape_.num_slots) : 0;
  return {shares_of(layer), count};
}

uint32_t UpdateBoard::num_posts() const {
  return header().num_posts.load(std::memory_order_acquire);
}

void UpdateBoard::wait_for_post(uint32_t seen, std::chrono::milliseconds at_most) const {
  const timespec timeout{.tv_sec = at_most.count() / 1000,
                         .tv_nsec = at_most.count() % 1000 * 1'000'000};
  // Not FUTEX_PRIVATE: the word is shared between processes.
  // The kernel compares the word with `seen` before it sleeps, so a post in between is not missed.
  ::syscall(SYS_futex, &header().num_posts, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

void UpdateBoard::wake() const {
  ::syscall(SYS_futex, &header().num_posts, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

UpdaterCounters& UpdateBoard::updater(int rank) const {
  std::byte* first = bytes_.data() + round_to_line(sizeof(Header));
  return *reinterpret_cast<UpdaterCounters*>(first + static_cast<size_t>(rank) *
                                                         round_to_line(sizeof(UpdaterCounters)));
}

BalancerCounters& UpdateBoard::balancer() const { return header().balancer; }

UpdateBoard::Header& UpdateBoard::header() const {
  return *reinterpret_cast<Header*>(bytes_.data());
}

UpdateBoard::Layer& UpdateBoard::layer_at(int layer) const {
  return *reinterpret_cast<Layer*>(bytes_.data() + layers_offset_ +
                                   static_cast<size_t>(layer) * layer_bytes_);
}

double* UpdateBoard::shares_of(int layer) const {
  return reinterpret_cast<double*>(&layer_at(layer) + 1);
}

int32_t* UpdateBoard::slots_of(int layer) const {
  return reinterpret_cast<int32_t*>(shares_of(layer) + shape_.num_slots);
}

}  // namespace wideep::online
