// SPDX-License-Identifier: Apache-2.0
//
// Fault injection for tests: an endpoint whose rank raises its flags late, or not at all, or dies
// (GroupOptions::faults). It works for ranks that are threads and for processes.
//
// Thread safety: as Endpoint.
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "transport/endpoint.h"

namespace wideep::transport {

struct Fault {
  enum class Kind {
    kDelay,    // raises its flags late
    kSilence,  // no longer raises its flags
    kKill,     // kills its process (SIGKILL); not for ranks that are threads
  };
  int rank = 0;
  Kind kind = Kind::kDelay;
  int after_raises = 0;                // number of correct raises before the fault
  std::chrono::milliseconds delay{0};  // kDelay: of each raise
};

class FaultyEndpoint : public Endpoint {
 public:
  FaultyEndpoint(std::shared_ptr<SharedMemory> memory, std::chrono::milliseconds timeout,
                 const Fault& fault)
      : Endpoint(std::move(memory), fault.rank, timeout), fault_(fault) {}

 protected:
  bool may_raise() override;

 private:
  Fault fault_;
  int raises_ = 0;
};

// The endpoint of `rank`, with the first of the faults that is for this rank, if any.
std::unique_ptr<Endpoint> make_endpoint(std::shared_ptr<SharedMemory> memory, int rank,
                                        std::chrono::milliseconds timeout,
                                        std::span<const Fault> faults);

}  // namespace wideep::transport
