// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/seeded_faults_testing.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "base/sanitized.h"

namespace wideep::cuda {
namespace {

std::vector<Fault> faults_of(Operation operation) {
  switch (operation) {
    case Operation::kBarrier:
    case Operation::kWarpBarrier:
    case Operation::kAtomic:
    case Operation::kAwaitPredecessor:
      return {Fault::kDropped};
    case Operation::kRelease:
      return {Fault::kDropped, Fault::kRelaxed, Fault::kOneDevice};
    case Operation::kAcquire:
      return {Fault::kRelaxed, Fault::kOneDevice};
    case Operation::kAtomicAcqRel:
      return {Fault::kRelaxed};
    case Operation::kLoad:
    case Operation::kShuffle:
      return {Fault::kNextPlace};
    case Operation::kStore:
      return {Fault::kDropped, Fault::kNextPlace};
    case Operation::kBallot:
    case Operation::kMatch:
      return {};
  }
  return {};
}

const char* fault_name(Fault fault) {
  constexpr const char* kNames[] = {"none", "dropped", "relaxed", "one device", "next place"};
  return kNames[static_cast<int>(fault)];
}

const char* operation_name(Operation operation) {
  constexpr const char* kNames[] = {"barrier", "warp barrier", "load",   "store",
                                    "acquire", "release",      "atomic", "acq_rel",
                                    "shuffle", "ballot",       "match",  "await predecessor"};
  return kNames[static_cast<int>(operation)];
}

}  // namespace

std::string missed_faults(const std::set<Site>& sites,
                          const std::function<std::string(const Mutation&)>& find) {
  const char* wanted_step = std::getenv("WIDEEP_CUDA_FAULTS");
  uint64_t step = base::kSanitized ? 20 : 1;  // sanitizers are slow
  if (wanted_step != nullptr) step = std::strtoull(wanted_step, nullptr, 10);
  uint64_t number = 0, tried = 0;
  std::string missed;
  for (const Site& site : sites) {
    for (const Fault fault : faults_of(site.operation)) {
      if (number++ % step != 0) continue;
      ++tried;
      const std::string found = find({fault, site});
      const std::string name =
          fmt::format("{}:{}:{} {} {}", site.file.substr(site.file.rfind('/') + 1), site.line,
                      site.column, operation_name(site.operation), fault_name(fault));
      if (found.empty()) missed += name + "\n";
      if (wanted_step != nullptr) fmt::print("{}: {}\n", name, found);
    }
  }
  fmt::print("{} seeded faults of {}\n", tried, number);
  return missed;
}

}  // namespace wideep::cuda
