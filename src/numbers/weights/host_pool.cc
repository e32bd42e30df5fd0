// SPDX-License-Identifier: Apache-2.0
#include "weights/host_pool.h"

#include <algorithm>

#include "base/content_hash.h"
#include "base/numa.h"
#include "base/try.h"

namespace wideep::weights {

Result<std::unique_ptr<HostPool>> HostPool::create(const ExpertShape& shape, int num_layers,
                                                   int num_experts,
                                                   const base::MakeSharedBytes& make) {
  std::unique_ptr<HostPool> pool(new HostPool(shape, num_layers, num_experts));
  const size_t count = static_cast<size_t>(num_layers) * static_cast<size_t>(num_experts) *
                       static_cast<size_t>(shape.num_slices);
  WIDEEP_TRY_ASSIGN(pool->records_, make("host pool", count * shape.record_bytes(),
                                         base::SharedPages::kHugeIfReserved));
  // Every rank of the node reads the pool, so that no node is a better place than another.
  base::spread_over_numa_nodes(pool->records_.data(), pool->records_.size());
  WIDEEP_TRY_ASSIGN(pool->hashes_,
                    make("host pool", count * sizeof(uint64_t), base::SharedPages::kNormal));
  // Fresh pages are zero: all parts are free.
  WIDEEP_TRY_ASSIGN(pool->owners_,
                    make("host pool", static_cast<size_t>(pool->num_parts()) * sizeof(Owner),
                         base::SharedPages::kNormal));
  return pool;
}

// As few that each is read at one go, and as many that no rank waits long for the last one.
int HostPool::num_parts() const { return std::min(128, num_records()); }

HostPool::Part HostPool::part(int index) const {
  // 64 bits: the product may exceed an int.
  const int64_t count = num_records();
  return {.index = index,
          .begin = static_cast<int>(count * index / num_parts()),
          .end = static_cast<int>(count * (index + 1) / num_parts())};
}

std::optional<HostPool::Part> HostPool::take(int rank) {
  for (int each = 0; each < num_parts(); ++each) {
    uint32_t expected = kFree;
    if (owner(each).compare_exchange_strong(expected, static_cast<uint32_t>(rank) + 1)) {
      return part(each);
    }
  }
  return std::nullopt;
}

void HostPool::finish(const Part& part) {
  owner(part.index).store(kDone, std::memory_order_release);
}

void HostPool::release(int rank) {
  for (int each = 0; each < num_parts(); ++each) {
    uint32_t expected = static_cast<uint32_t>(rank) + 1;
    owner(each).compare_exchange_strong(expected, kFree);
  }
}

bool HostPool::is_filled() const {
  for (int each = 0; each < num_parts(); ++each) {
    if (owner(each).load(std::memory_order_acquire) != kDone) return false;
  }
  return true;
}

Status HostPool::reserve(const Part& part) const {
  const size_t bytes = shape_.record_bytes();
  return records_.reserve(static_cast<size_t>(part.begin) * bytes,
                          static_cast<size_t>(part.end - part.begin) * bytes);
}

void HostPool::seal(const Address& at) {
  hashes()[index(at)] = base::content_hash(record(at), shape_.record_bytes());
}

}  // namespace wideep::weights
