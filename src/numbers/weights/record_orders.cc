// SPDX-License-Identifier: Apache-2.0
#include "weights/record_orders.h"

#include <algorithm>

#include "base/check.h"
#include "base/cpu_time.h"

namespace wideep::weights {

void RecordOrders::move(Job& job, std::list<Job>& to) {
  to.splice(to.end(), *job.list, job.self);
  job.list = &to;
}

size_t RecordOrders::add(const RecordOrder& order) {
  WIDEEP_CHECK_GE(order.bytes, uint64_t{1});
  if (free_.empty()) {
    const auto made = free_.emplace(free_.end());
    made->self = made;
    made->list = &free_;
  }
  Job& job = free_.front();
  job.order = order;
  job.is_late = job.is_read_again = false;
  start(job);
  return num_pieces(job);
}

void RecordOrders::start(Job& job) {
  job.hash.reset();
  job.arrived.assign(num_pieces(job), false);
  job.begun = job.hashed = 0;
  job.error = 0;
  move(job, waiting(job));
}

bool RecordOrders::cancel(uint64_t ticket) {
  for (std::list<Job>* list : {&background_, &urgent_}) {
    for (Job& job : *list) {
      if (job.order.ticket != ticket) continue;
      if (job.begun > 0 || job.is_read_again) return false;
      move(job, free_);
      return true;
    }
  }
  return false;
}

bool RecordOrders::make_urgent(uint64_t ticket) {
  for (Job& job : background_) {
    if (job.order.ticket != ticket) continue;
    job.order.is_urgent = true;
    move(job, urgent_);
    return true;
  }
  return false;
}

bool RecordOrders::has_piece_to_read() const {
  if (!urgent_.empty()) return true;
  return !background_.empty() && num_background_reads_ < std::max(depth_ / 2, 1);
}

RecordOrders::Piece RecordOrders::piece(Job& job, size_t index) const {
  const uint64_t begin = index * piece_bytes_;
  return {.job = &job,
          .index = index,
          .begin = begin,
          .bytes = std::min(piece_bytes_, job.order.bytes - begin),
          .is_urgent = job.order.is_urgent};
}

RecordOrders::Piece RecordOrders::begin_read() {
  WIDEEP_CHECK(has_piece_to_read());
  Job& job = urgent_.empty() ? background_.front() : urgent_.front();
  const Piece begun = piece(job, job.begun++);
  ++job.num_threads;
  if (job.begun == num_pieces(job)) move(job, begun_);
  if (num_reads_++ == 0) busy_since_ns_ = base::wall_ns();
  if (!begun.is_urgent) ++num_background_reads_;
  return begun;
}

void RecordOrders::end_read(const Piece& piece, int error) {
  if (--num_reads_ == 0) busy_ns_ += base::wall_ns() - busy_since_ns_;
  if (!piece.is_urgent) --num_background_reads_;
  Job& job = *piece.job;
  if (error == 0) {
    counters_.bytes += piece.bytes;
    job.arrived[piece.index] = true;
  } else if (!job.is_given_up()) {
    job.error = error;
    move(job, begun_);
  }
}

std::optional<RecordOrders::Piece> RecordOrders::next_to_hash(Job& job) {
  if (job.is_hashed_now || job.is_given_up() || job.hashed == num_pieces(job) ||
      !job.arrived[job.hashed]) {
    return std::nullopt;
  }
  job.is_hashed_now = true;
  return piece(job, job.hashed);
}

void RecordOrders::end_hash(Job& job) {
  job.is_hashed_now = false;
  ++job.hashed;
}

// Whoever hashes looks again before it leaves, so that of an order whose pieces have all arrived
// the last thread to leave finds all of them hashed.
bool RecordOrders::leave(Job& job) {
  const bool is_read = job.is_given_up() || job.hashed == num_pieces(job);
  return --job.num_threads == 0 && is_read && settle(job);
}

bool RecordOrders::settle(Job& job) {
  if (job.is_late) return end(job, RecordEnd::kReturned);
  if (job.error != 0) return end(job, RecordEnd::kFailed);
  if (job.hash.hash() == job.order.hash) return end(job, RecordEnd::kWhole);
  if (job.is_read_again) return end(job, RecordEnd::kDamaged);
  ++counters_.read_again;
  job.is_read_again = true;
  start(job);
  return false;
}

bool RecordOrders::end(Job& job, RecordEnd end) {
  ends_.push_back({.ticket = job.order.ticket,
                   .offset = job.order.offset,
                   .end = end,
                   .error = job.error,
                   .is_lent = end == RecordEnd::kLate && job.num_threads > 0});
  counters_.whole += end == RecordEnd::kWhole ? 1 : 0;
  counters_.damaged += end == RecordEnd::kDamaged ? 1 : 0;
  counters_.failed += end == RecordEnd::kFailed ? 1 : 0;
  counters_.late += end == RecordEnd::kLate ? 1 : 0;
  move(job, job.num_threads > 0 ? begun_ : free_);
  return true;
}

int64_t RecordOrders::expire(int64_t now_ns) {
  int64_t first_ns = std::numeric_limits<int64_t>::max();
  for (std::list<Job>* list : {&urgent_, &background_, &begun_}) {
    for (auto next = list->begin(); next != list->end();) {
      Job& job = *next++;  // which may leave the list
      if (job.is_late) continue;
      if (job.order.deadline_ns <= now_ns) {
        job.is_late = true;
        end(job, RecordEnd::kLate);
      } else {
        first_ns = std::min(first_ns, job.order.deadline_ns);
      }
    }
  }
  return first_ns;
}

std::optional<Completion> RecordOrders::next_end() {
  if (ends_.empty()) return std::nullopt;
  const Completion next = ends_.front();
  ends_.pop_front();
  return next;
}

RecordCounters RecordOrders::counters() const {
  RecordCounters all = counters_;
  const int64_t now_ns = num_reads_ > 0 ? base::wall_ns() - busy_since_ns_ : 0;
  all.busy_s = static_cast<double>(busy_ns_ + now_ns) * 1e-9;
  return all;
}

}  // namespace wideep::weights
