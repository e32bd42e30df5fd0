// SPDX-License-Identifier: Apache-2.0
//
// The work of loading, collected first and then done by all threads at once: the many tensors of a
// model are cut into pieces of about equal size, in the order in which they were added.
//
// Where the files are not in the page cache, threads ask for what they will need soon, so that the
// disk reads ahead while they pack.
//
// Thread safety: one thread.
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
  // What is read: one after the other, about evenly over the units. Outlive run().
  std::vector<std::span<const std::byte>> sources;
  int64_t num_units = 1;
  // Loads units [begin, end): on any thread, in any order, units of all jobs side by side.
  std::function<Status(int64_t begin, int64_t end)> load;

  size_t source_bytes() const;
  size_t source_bytes(int64_t begin, int64_t end) const;
};

class LoadQueue {
 public:
  void add(LoadJob job) { jobs_.push_back(std::move(job)); }

  // Does all jobs and forgets them. pool: null for the calling thread alone. progress: told the
  // bytes read since the last call, from any thread, one at a time.
  // Returns the first job's error, if any has one.
  Status run(base::ThreadPool* pool, const std::function<void(uint64_t bytes)>& progress);

 private:
  std::vector<LoadJob> jobs_;
};

}  // namespace wideep::weights
