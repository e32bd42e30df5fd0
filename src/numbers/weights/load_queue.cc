// SPDX-License-Identifier: Apache-2.0
//
// Jobs are cut into pieces of about 1 MiB; neighbouring pieces form a task, the work that a thread
// takes at once. Tasks are taken in order, so that the disk reads files from front to back. A
// thread that begins task i asks the kernel for the bytes of task i + 2 × threads.
#include "weights/load_queue.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace wideep::weights {
namespace {

// Units of one job that are loaded by one call.
struct Piece {
  const LoadJob* job;
  int64_t begin;
  int64_t end;

  size_t bytes() const { return job->source_bytes(begin, end); }
};

constexpr size_t kPieceBytes = size_t{1} << 20;
// The largest task. Several huge pages, so that two threads rarely write to one huge page for the
// first time at once: the kernel would clear it twice.
constexpr size_t kLargestTaskBytes = size_t{8} << 20;
// The number of tasks per thread for small models. The more tasks, the closer together threads
// finish.
constexpr size_t kTasksPerThread = 16;

std::vector<Piece> cut_into_pieces(const std::vector<LoadJob>& jobs) {
  std::vector<Piece> pieces;
  for (const LoadJob& job : jobs) {
    const auto cuts = static_cast<int64_t>(job.source_bytes() / kPieceBytes) + 1;
    const int64_t units = (job.num_units + cuts - 1) / cuts;
    for (int64_t begin = 0; begin < job.num_units; begin += units) {
      pieces.push_back({&job, begin, std::min(begin + units, job.num_units)});
    }
  }
  return pieces;
}

// Neighbouring pieces.
using Task = std::span<const Piece>;

std::vector<Task> group_into_tasks(const std::vector<Piece>& pieces, int num_threads) {
  size_t total = 0;
  for (const Piece& piece : pieces) total += piece.bytes();
  const size_t target = std::clamp(total / (static_cast<size_t>(num_threads) * kTasksPerThread),
                                   kPieceBytes, kLargestTaskBytes);
  std::vector<Task> tasks;
  size_t begin = 0, bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].bytes();
    if (bytes < target && i + 1 < pieces.size()) continue;
    tasks.push_back(std::span(pieces).subspan(begin, i + 1 - begin));
    begin = i + 1;
    bytes = 0;
  }
  return tasks;
}

// Asks the kernel to read the pages of these bytes into the page cache.
void will_need(std::span<const std::byte> bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = begin / page * page;
  // Only a hint; the call fails or does nothing for memory that is not a mapped file.
  ::madvise(reinterpret_cast<void*>(first), begin + bytes.size() - first, MADV_WILLNEED);
}

void will_need(const Piece& piece) {
  size_t begin = piece.job->source_bytes(0, piece.begin), left = piece.bytes();
  for (const std::span<const std::byte> source : piece.job->sources) {
    const size_t skipped = std::min(begin, source.size());
    const size_t taken = std::min(left, source.size() - skipped);
    if (taken > 0) will_need(source.subspan(skipped, taken));
    begin -= skipped;
    left -= taken;
  }
}

// The number of page faults of this thread that waited for a disk.
int64_t disk_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_majflt;
}

class Run {
 public:
  Run(std::vector<Task> tasks, int num_threads, const std::function<void(uint64_t)>& progress)
      : tasks_(std::move(tasks)),
        ahead_(2 * static_cast<size_t>(num_threads)),
        progress_(progress) {}

  int64_t num_tasks() const { return static_cast<int64_t>(tasks_.size()); }

  void load(size_t task) {
    if (from_disk_.load(std::memory_order_relaxed) && task + ahead_ < tasks_.size()) {
      for (const Piece& piece : tasks_[task + ahead_]) will_need(piece);
    }
    const int64_t faults = disk_faults();
    for (const Piece& piece : tasks_[task]) {
      Status status = piece.job->load(piece.begin, piece.end);
      const std::lock_guard lock(mutex_);
      progress_(piece.bytes());
      if (status.ok() || (failed_ != nullptr && failed_ < &piece)) continue;
      failed_ = &piece;
      status_ = std::move(status);
    }
    if (disk_faults() > faults) from_disk_.store(true, std::memory_order_relaxed);
  }

  Status status() const { return status_; }

 private:
  std::vector<Task> tasks_;
  size_t ahead_;  // distance from the task that begins to the task that is read ahead
  const std::function<void(uint64_t)>& progress_;
  std::mutex mutex_;               // guards progress_, failed_ and status_
  const Piece* failed_ = nullptr;  // the first piece that failed; pieces are in one array, in order
  Status status_;
  // Whether any thread has waited for a disk. Read-ahead starts only then, because asking for pages
  // that are in the page cache costs a few percent of the loading time.
  std::atomic<bool> from_disk_{false};
};

}  // namespace

size_t LoadJob::source_bytes() const {
  size_t bytes = 0;
  for (const auto& source : sources) bytes += source.size();
  return bytes;
}

size_t LoadJob::source_bytes(int64_t begin, int64_t end) const {
  const double per_unit = static_cast<double>(source_bytes()) / static_cast<double>(num_units);
  // Differences of rounded sums, so that the parts of a job add up to its bytes exactly.
  const auto up_to = [&](int64_t unit) {
    return unit == num_units ? source_bytes()
                             : static_cast<size_t>(per_unit * static_cast<double>(unit));
  };
  return up_to(end) - up_to(begin);
}

void LoadQueue::read_ahead() const {
  for (const LoadJob& job : jobs_) {
    for (const std::span<const std::byte> source : job.sources) will_need(source);
  }
}

Status LoadQueue::run(base::ThreadPool* pool, const std::function<void(uint64_t)>& progress) {
  const int num_threads = pool == nullptr ? 1 : pool->num_threads();
  const std::vector<Piece> pieces = cut_into_pieces(jobs_);
  Run run(group_into_tasks(pieces, num_threads), num_threads, progress);
  const auto load = [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) run.load(static_cast<size_t>(task));
  };
  if (pool == nullptr) {
    load(0, run.num_tasks());
  } else {
    pool->parallel_for(run.num_tasks(), 1, load);
  }
  jobs_.clear();
  return run.status();
}

}  // namespace wideep::weights
