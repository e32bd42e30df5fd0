// SPDX-License-Identifier: Apache-2.0
#include "transport/rank_threads.h"

#include <thread>

#include "base/try.h"
#include "transport/bridge.h"
#include "transport/memory_switch.h"

namespace wideep::transport {
namespace {

constexpr std::chrono::milliseconds kFailureFlushTime{
    200};  // to send a rank's error to other nodes

// The simulated nodes, each with its memory.
struct Nodes {
  NodeMap map;
  std::vector<std::shared_ptr<SharedMemory>> memories;
  MemorySwitch network;
};

Status run_on_node(Nodes& nodes, int rank, const GroupOptions& options,
                   const std::function<Status(Endpoint&)>& body) {
  const auto& memory = nodes.memories[static_cast<size_t>(nodes.map.node_of(rank))];
  const auto endpoint = make_endpoint(memory, rank, options.timeout, options.faults);
  if (options.num_nodes == 1) {
    Status status = body(*endpoint);
    if (!status.ok()) memory->fail(status);
    return status;
  }
  Bridge bridge(memory, nodes.network.link(rank), nodes.map, rank);
  endpoint->set_bridge(&bridge);
  Status status = body(*endpoint);
  // Twice the timeout: a wait of another rank reaches its deadline first, and its error names what
  // was awaited.
  if (status.ok()) return bridge.finish(2 * options.timeout);
  memory->fail(status);
  bridge.send_failure(status);
  bridge.flush(kFailureFlushTime);
  return status;
}

}  // namespace

Result<std::vector<Status>> run_rank_threads(const GroupOptions& options,
                                             const std::function<Status(Endpoint&)>& body) {
  Nodes nodes{
      NodeMap::even(options.num_ranks, options.num_nodes), {}, MemorySwitch(options.num_ranks)};
  for (int node = 0; node < options.num_nodes; ++node) {
    WIDEEP_TRY_ASSIGN(auto memory, SharedMemory::create(options.num_ranks, options.segment_bytes));
    nodes.memories.push_back(std::move(memory));
  }
  std::vector<Status> statuses(options.num_ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options.num_ranks; ++rank) {
    threads.emplace_back([&, rank] { statuses[rank] = run_on_node(nodes, rank, options, body); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace wideep::transport
