// SPDX-License-Identifier: Apache-2.0
#include "weights/host_pool.h"

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
  return pool;
}

HostPool::Share HostPool::share_of(int rank, int num_ranks) const {
  // 64 bits: the product with the rank below may exceed an int.
  const int64_t count = int64_t{num_layers_} * num_experts_ * shape_.num_slices;
  return {static_cast<int>(count * rank / num_ranks),
          static_cast<int>(count * (rank + 1) / num_ranks)};
}

Status HostPool::reserve_share(int rank, int num_ranks) const {
  const auto [begin, end] = share_of(rank, num_ranks);
  const size_t bytes = shape_.record_bytes();
  return records_.reserve(static_cast<size_t>(begin) * bytes,
                          static_cast<size_t>(end - begin) * bytes);
}

void HostPool::seal(const Address& at) {
  hashes()[index(at)] = base::content_hash(record(at), shape_.record_bytes());
}

}  // namespace wideep::weights
