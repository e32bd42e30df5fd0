// SPDX-License-Identifier: Apache-2.0
//
// A thread takes a piece, reads it, hashes what can be hashed of its record, and takes the next.
// What is shared lies in Work, which each thread keeps: a thread that the disk does not answer may
// be left behind, and ends whenever it does.
//
// Threads with pread(2) rather than io_uring: on a virtual disk medians were 2.6 GB/s and 2.65, of
// five runs each, in turns, that differed by 0.2 to 0.3 (records of 2, 8 and 36 MiB, 8 pieces of
// 1 MiB in flight). io_uring would save 0.006 s of a core for each GB; the hash, which needs a
// thread in any case, takes 0.1 s.
#include "weights/record_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>

#include "base/byte_size.h"
#include "base/check.h"
#include "base/cpu_time.h"
#include "base/named_thread.h"
#include "base/try.h"

namespace wideep::weights {
namespace {

constexpr std::chrono::seconds kHungAfter{2};

std::chrono::steady_clock::time_point time_of(int64_t ns) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(ns));
}

bool is_aligned(uint64_t value) { return value % DirectInput::kBlockBytes == 0; }

}  // namespace

class RecordReader::Work {
 public:
  Work(DirectInput input, RecordReaderOptions options)
      : input_(std::move(input)),
        options_(std::move(options)),
        orders_(options_.depth, options_.piece_bytes) {}

  const DirectInput& input() const { return input_; }
  const RecordReaderOptions& options() const { return options_; }

  void submit(std::span<const RecordOrder> orders);
  bool cancel(uint64_t ticket);
  void make_urgent(uint64_t ticket);
  std::optional<Completion> wait(int64_t deadline_ns);
  RecordCounters counters() const;

  void run();
  // Ends the threads. false: the disk has not answered one of them in time.
  bool end_threads();

 private:
  using Lock = std::unique_lock<std::mutex>;
  void hash_arrived(RecordOrders::Job& job, Lock& lock);

  const DirectInput input_;
  const RecordReaderOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;  // for threads: there are orders, or the end
  std::condition_variable ended_;    // for callers: an order or a thread has ended
  RecordOrders orders_;              // guarded by mutex_
  int num_threads_ = 0;              // that run; guarded by mutex_
  bool ends_ = false;                // guarded by mutex_
};

// ---- the threads ----

void RecordReader::Work::run() {
  base::name_and_bind_thread("wideep-read", options_.processors);
  Lock lock(mutex_);
  ++num_threads_;
  while (true) {
    changed_.wait(lock, [this] { return ends_ || orders_.has_piece_to_read(); });
    if (ends_) break;
    const RecordOrders::Piece piece = orders_.begin_read();
    RecordOrders::Job& job = *piece.job;
    lock.unlock();
    const int error =
        input_.read(job.order.offset + piece.begin, job.order.into + piece.begin, piece.bytes);
    lock.lock();
    orders_.end_read(piece, error);
    // Background may be read again, while this thread hashes.
    if (orders_.has_piece_to_read()) changed_.notify_one();
    hash_arrived(job, lock);
    if (orders_.leave(job)) ended_.notify_all();
  }
  --num_threads_;
  ended_.notify_all();
}

void RecordReader::Work::hash_arrived(RecordOrders::Job& job, Lock& lock) {
  while (const auto piece = orders_.next_to_hash(job)) {
    lock.unlock();
    job.hash.update(job.order.into + piece->begin, piece->bytes);
    lock.lock();
    orders_.end_hash(job);
  }
}

bool RecordReader::Work::end_threads() {
  Lock lock(mutex_);
  ends_ = true;
  changed_.notify_all();
  const auto have_ended = [this] { return num_threads_ == 0; };
  if (options_.memory != nullptr) return ended_.wait_for(lock, kHungAfter, have_ended);
  ended_.wait(lock, have_ended);
  return true;
}

// ---- the callers ----

void RecordReader::Work::submit(std::span<const RecordOrder> orders) {
  const Lock lock(mutex_);
  size_t pieces = 0;
  for (const RecordOrder& order : orders) {
    WIDEEP_CHECK(is_aligned(order.offset) && is_aligned(reinterpret_cast<uintptr_t>(order.into)));
    pieces += orders_.add(order);
  }
  // Not all threads for a record of one piece, which one of them reads.
  const auto depth = static_cast<size_t>(options_.depth);
  for (size_t i = 0; i < std::min(pieces, depth); ++i) changed_.notify_one();
  ended_.notify_all();  // whoever waits does so until another deadline now
}

bool RecordReader::Work::cancel(uint64_t ticket) {
  const Lock lock(mutex_);
  return orders_.cancel(ticket);
}

void RecordReader::Work::make_urgent(uint64_t ticket) {
  const Lock lock(mutex_);
  if (orders_.make_urgent(ticket)) changed_.notify_all();
}

std::optional<Completion> RecordReader::Work::wait(int64_t deadline_ns) {
  Lock lock(mutex_);
  while (true) {
    const int64_t now_ns = base::wall_ns();
    const int64_t first_ns = orders_.expire(now_ns);
    if (const auto next = orders_.next_end()) return next;
    if (!orders_.is_any_open() || now_ns >= deadline_ns) return std::nullopt;
    ended_.wait_until(lock, time_of(std::min(first_ns, deadline_ns)));
  }
}

RecordCounters RecordReader::Work::counters() const {
  const Lock lock(mutex_);
  return orders_.counters();
}

Result<std::unique_ptr<RecordReader>> RecordReader::open(const std::string& path,
                                                         RecordReaderOptions options) {
  WIDEEP_CHECK_GE(options.depth, 1);
  WIDEEP_CHECK(options.piece_bytes > 0 && is_aligned(options.piece_bytes));
  WIDEEP_TRY_ASSIGN(DirectInput input, DirectInput::open(path, std::move(options.read_piece)));
  const auto work = std::make_shared<Work>(std::move(input), std::move(options));
  std::unique_ptr<RecordReader> reader(new RecordReader(work));
  for (int i = 0; i < work->options().depth; ++i) {
    try {
      reader->threads_.emplace_back([work] { work->run(); });
    } catch (const std::system_error& error) {
      return failed(fmt::format("{}: thread {} of {} that read it cannot be started: {}", path,
                                i + 1, work->options().depth, error.what()));
    }
  }
  return reader;
}

RecordReader::~RecordReader() {
  const bool have_ended = work_->end_threads();
  for (std::thread& thread : threads_) {
    if (have_ended) {
      thread.join();
    } else {
      thread.detach();
    }
  }
}

const std::string& RecordReader::path() const { return work_->input().path(); }
bool RecordReader::is_direct() const { return work_->input().is_direct(); }

std::string RecordReader::description() const {
  return fmt::format("{} threads, pieces of {}, {}", work_->options().depth,
                     base::byte_size(work_->options().piece_bytes),
                     is_direct() ? "past the page cache"
                                 : "through the page cache: the file system refuses O_DIRECT");
}

void RecordReader::submit(std::span<const RecordOrder> orders) { work_->submit(orders); }
bool RecordReader::cancel(uint64_t ticket) { return work_->cancel(ticket); }
void RecordReader::make_urgent(uint64_t ticket) { work_->make_urgent(ticket); }
std::optional<Completion> RecordReader::poll() { return work_->wait(0); }
std::optional<Completion> RecordReader::wait(int64_t deadline_ns) {
  return work_->wait(deadline_ns);
}
RecordCounters RecordReader::counters() const { return work_->counters(); }

Status RecordReader::status_of(const Completion& completion) const {
  const std::string where = fmt::format("{}: the record at byte {}", path(), completion.offset);
  switch (completion.end) {
    case RecordEnd::kWhole:
    case RecordEnd::kReturned:
      return {};
    case RecordEnd::kDamaged:
      return failed(where +
                    " is not what was written, read twice: the file or the disk is damaged");
    case RecordEnd::kFailed:
      return failed(fmt::format("{} cannot be read: {}", where,
                                completion.error == ENODATA ? "the file ends before the record does"
                                                            : std::strerror(completion.error)));
    case RecordEnd::kLate:
      break;
  }
  return deadline_exceeded(where + " was not read within its deadline: the disk is slow or hangs");
}

}  // namespace wideep::weights
