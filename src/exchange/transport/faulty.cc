// SPDX-License-Identifier: Apache-2.0
#include "transport/faulty.h"

#include <csignal>
#include <thread>

namespace wideep::transport {

bool FaultyEndpoint::may_raise() {
  if (raises_++ < fault_.after_raises) return true;
  switch (fault_.kind) {
    case Fault::Kind::kDelay:
      std::this_thread::sleep_for(fault_.delay);
      return true;
    case Fault::Kind::kSilence:
      return false;
    case Fault::Kind::kKill:
      std::raise(SIGKILL);
      return false;
  }
  return true;
}

std::unique_ptr<Endpoint> make_endpoint(std::shared_ptr<SharedMemory> memory, int rank,
                                        std::chrono::milliseconds timeout,
                                        std::span<const Fault> faults) {
  for (const Fault& fault : faults) {
    if (fault.rank == rank) {
      return std::make_unique<FaultyEndpoint>(std::move(memory), timeout, fault);
    }
  }
  return std::make_unique<Endpoint>(std::move(memory), rank, timeout);
}

}  // namespace wideep::transport
