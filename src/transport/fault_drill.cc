// SPDX-License-Identifier: Apache-2.0
#include "transport/fault_drill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <utility>
#include <vector>

namespace wideep::transport {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(FaultDrill::Step::kCount)> kNames = {
    "loaded",  "joined", "holding",   "regrouped", "filled",  "agreed",
    "leaving", "read",   "recording", "recorded",  "writing", "replied"};

struct Drill {
  FaultDrill::Step step;
  uint32_t passage;
};
std::vector<Drill> drills;  // set before the process forks

}  // namespace

FaultDrill::Counters* FaultDrill::counters_ = nullptr;

Status FaultDrill::prepare() {
  const char* variable = std::getenv("WIDEEP_FAULT_DRILL");
  std::string_view rest = variable == nullptr ? "" : variable;
  drills.clear();
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::string_view name = one.substr(0, one.find(':'));
    const std::string_view number = one.substr(std::min(one.size(), name.size() + 1));
    const auto found = std::ranges::find(kNames, name);
    uint32_t passage = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), passage);
    if (found == kNames.end() || error != std::errc() || end != number.data() + number.size() ||
        passage == 0) {
      return invalid_input(
          fmt::format("WIDEEP_FAULT_DRILL: expected step:number, with a step of {}, found '{}'",
                      fmt::join(kNames, ", "), one));
    }
    drills.push_back({static_cast<Step>(found - kNames.begin()), passage});
  }
  return {};
}

void FaultDrill::begin(Counters& counters) {
  if (!drills.empty()) counters_ = &counters;
}

void FaultDrill::count(Step step) {
  const uint32_t passage = 1 + (*counters_)[static_cast<size_t>(step)].fetch_add(1);
  for (const Drill& drill : drills) {
    if (drill.step == step && drill.passage == passage) ::kill(::getpid(), SIGKILL);
  }
}

}  // namespace wideep::transport
