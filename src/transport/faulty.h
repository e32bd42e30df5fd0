// SPDX-License-Identifier: Apache-2.0
//
// A rank that goes wrong on purpose, so that tests see what its peers make of it. Everything else
// about the group, threads or processes, is as it always is (GroupOptions::faults).
#pragma once

#include <chrono>
#include <memory>
#include <span>

#include "transport/endpoint.h"

namespace wideep::transport {

struct Fault {
  enum class Kind {
    kDelay,    // raises its flags late
    kSilence,  // raises none any more
    kKill,     // the process ends by signal 9; ranks that are processes only
  };
  int rank = 0;
  Kind kind = Kind::kDelay;
  int after_raises = 0;  // so many times it raises a flag as it should
  std::chrono::milliseconds delay{0};
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

// A rank's endpoint: with the first fault that is its own, or sound.
std::unique_ptr<Endpoint> make_endpoint(std::shared_ptr<SharedMemory> memory, int rank,
                                        std::chrono::milliseconds timeout,
                                        std::span<const Fault> faults);

}  // namespace wideep::transport
