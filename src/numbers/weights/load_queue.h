// SPDX-License-Identifier: Apache-2.0
//
// Collects the loading work of many tensors and then does it with all threads: the work is cut into
// pieces of about equal size, which are done in the order in which the tensors were added.
//
// If the files are not in the page cache, threads ask the kernel to read the bytes of later pieces,
// so that the disk works while they pack.
//
// Thread safety: one thread calls add() and run().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "wideep/status.h"

namespace wideep::weights {

struct LoadJob {
  // The bytes that the job reads, in this order and in equal parts for each unit. Used for
  // balancing and read-ahead. They must stay valid until run() returns.
  std::vector<std::span<const std::byte>> sources;
  int64_t num_units = 1;
  // Loads units [begin, end). Called on any thread and in any order, concurrently with others.
  std::function<Status(int64_t begin, int64_t end)> load;

  size_t source_bytes() const;
  size_t source_bytes(int64_t begin, int64_t end) const;  // of units [begin, end)
};

class LoadQueue {
 public:
  void add(LoadJob job) { jobs_.push_back(std::move(job)); }

  // Asks the kernel to read what the jobs need, and returns at once.
  void read_ahead() const;

  // Does all jobs and removes them. pool: null means the calling thread only. progress: called with
  // the bytes read since its last call, on any thread, one call at a time. After an error the other
  // jobs are still done. Returns the error of the first job that has one.
  Status run(base::ThreadPool* pool, const std::function<void(uint64_t bytes)>& progress);

 private:
  std::vector<LoadJob> jobs_;
};

}  // namespace wideep::weights
