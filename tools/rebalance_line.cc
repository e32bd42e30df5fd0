// SPDX-License-Identifier: Apache-2.0
#include "rebalance_line.h"

#include <string>

#include "base/log.h"

namespace wideep::tools {

void log_rebalance(const online::Rebalance& each) {
  const std::string cancelled =
      each.cancelled == 0 ? "" : fmt::format(", {} cancelled", each.cancelled);
  log::info(
      "rebalance before iteration {}: {} layer{}{}, {} expert{} moved ({:.1f} MiB), imbalance "
      "{:.3f} "
      "-> {:.3f}, copied in {:.1f} ms, in service after {:.1f} ms",
      each.iteration, each.layers, each.layers == 1 ? "" : "s", cancelled, each.moves,
      each.moves == 1 ? "" : "s", static_cast<double>(each.bytes) / (1 << 20),
      each.imbalance_before, each.imbalance_after, each.copy_seconds * 1e3, each.seconds * 1e3);
}

}  // namespace wideep::tools
