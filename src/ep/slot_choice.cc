// SPDX-License-Identifier: Apache-2.0
#include "ep/slot_choice.h"

namespace wideep::ep {

void SlotChooser::choose(const balance::RoutingTable& table, std::span<const int32_t> experts,
                         int64_t offset, std::span<int32_t> slots) {
  turn_.assign(table.num_experts(), offset);
  for (size_t i = 0; i < experts.size(); ++i) {
    const auto replicas = table.replicas(experts[i]);
    slots[i] = replicas[turn_[experts[i]]++ % static_cast<int64_t>(replicas.size())];
  }
}

}  // namespace wideep::ep
