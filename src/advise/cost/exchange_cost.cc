// SPDX-License-Identifier: Apache-2.0
#include "cost/exchange_cost.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace wideep::cost {

RowsAway rows_away(const Hardware& hardware, int num_ranks) {
  const double ranks = num_ranks;
  // What divisible devices send to other nodes is wire_seconds().
  const double near =
      hardware.divisible ? num_ranks : std::min(num_ranks, hardware.node_link_ranks);
  return {.node = (near - 1.0) / ranks, .network = (ranks - near) / ranks};
}

double wire_seconds(const Hardware& hardware, const ExchangeWork& work) {
  const int nodes = std::min(hardware.nodes, work.num_ranks);
  if (!hardware.divisible || nodes <= 1) return 0.0;
  const double of_node = std::ceil(static_cast<double>(work.num_ranks) / nodes);
  const double away = 1.0 - of_node / work.num_ranks;
  const Link& network = hardware.network;
  return network.latency + of_node * away * work.rows * work.row_bytes / network.bandwidth;
}

double message_seconds(const Hardware& hardware, int num_ranks) {
  return hardware.divisible ? (std::min(hardware.nodes, num_ranks) - 1) * hardware.network.message
                            : 0.0;
}

double exchange_seconds(const Hardware& hardware, const ExchangeKernel& kernel,
                        const ExchangeWork& work) {
  const RowsAway away = rows_away(hardware, work.num_ranks);
  const double bytes = work.rows * work.row_bytes;
  double latency = hardware.node_link.latency;
  double links = bytes * away.node / (hardware.node_link.bandwidth * kernel.link);
  if (away.network > 0.0) {
    WIDEEP_CHECK(hardware.network.bandwidth > 0.0);
    latency = std::max(latency, hardware.network.latency);
    links = std::max(links, bytes * away.network / (hardware.network.bandwidth * kernel.link));
  }
  return kernel.overhead + kernel.latency * latency +
         std::hypot(links, kernel.serial * work.serial);
}

}  // namespace wideep::cost
