// SPDX-License-Identifier: Apache-2.0
//
// Messages between ranks of several nodes, after their connection has proved the key: whatever they
// say, only memory of the segments and flags is written, or the group fails.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "transport/bridge.h"
#include "transport/memory_switch.h"

namespace {

using namespace wideep::transport;

constexpr size_t kSegment = 4096;

}  // namespace

// data: the sender's rank, then the message.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto memory = SharedMemory::create(4, kSegment).value();
  if (size == 0) return 0;
  MemorySwitch network(4);
  Bridge bridge(memory, network.link(0), NodeMap({0, 1, 0, 1}), 0);
  const int from = data[0] % 4;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  network.link(from).send(0, Bytes(bytes + 1, bytes + size));
  if (!bridge.progress()) std::abort();
  while (bridge.next_command()) {
  }
  memory->clear();
  return 0;
}
