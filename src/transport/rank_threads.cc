// SPDX-License-Identifier: Apache-2.0
#include "transport/rank_threads.h"

#include <thread>

#include "base/try.h"

namespace wideep::transport {

Result<std::vector<Status>> run_rank_threads(const GroupOptions& options,
                                             const std::function<Status(Endpoint&)>& body) {
  WIDEEP_TRY_ASSIGN(auto memory, SharedMemory::create(options.num_ranks, options.segment_bytes));
  std::vector<Status> statuses(options.num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto endpoint = make_endpoint(memory, rank, options.timeout, options.faults);
      statuses[rank] = body(*endpoint);
      if (!statuses[rank].ok()) memory->fail(statuses[rank]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace wideep::transport
