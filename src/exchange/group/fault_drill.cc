// SPDX-License-Identifier: Apache-2.0
#include "group/fault_drill.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <optional>
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
  uint32_t delay_ms = 0;
};
std::vector<Drill> drills;  // set before the process forks

// "filled:3+5". nullopt: it is none.
std::optional<Drill> parse(std::string_view text) {
  const std::string_view name = text.substr(0, text.find(':'));
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end() || name.size() == text.size()) return std::nullopt;
  Drill drill{.step = static_cast<FaultDrill::Step>(found - kNames.begin()), .passage = 0};
  const char* const last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data() + name.size() + 1, last, drill.passage);
  if (error == std::errc() && end != last && *end == '+') {
    const auto delay = std::from_chars(end + 1, last, drill.delay_ms);
    end = delay.ptr;
    error = delay.ec;
  }
  if (error != std::errc() || end != last || drill.passage == 0) return std::nullopt;
  return drill;
}

// The kernel sends the signal, whatever this process does then.
void kill_in(std::chrono::milliseconds delay) {
  sigevent event{};
  event.sigev_notify = SIGEV_SIGNAL;
  event.sigev_signo = SIGKILL;
  timer_t timer{};
  if (delay.count() == 0 || ::timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) {
    ::kill(::getpid(), SIGKILL);
  }
  itimerspec at{};
  at.it_value = {.tv_sec = delay.count() / 1000, .tv_nsec = delay.count() % 1000 * 1'000'000};
  ::timer_settime(timer, 0, &at, nullptr);
}

}  // namespace

StepCounters* FaultDrill::counters_ = nullptr;

Status FaultDrill::prepare() {
  const char* variable = std::getenv("WIDEEP_FAULT_DRILL");
  std::string_view rest = variable == nullptr ? "" : variable;
  drills.clear();
  while (!rest.empty()) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
    const std::optional<Drill> drill = parse(one);
    if (!drill) {
      return invalid_input(fmt::format(
          "WIDEEP_FAULT_DRILL: expected step:number or step:number+milliseconds, with a step of "
          "{}, found '{}'",
          fmt::join(kNames, ", "), one));
    }
    drills.push_back(*drill);
  }
  return {};
}

void FaultDrill::begin(StepCounters& counters) {
  if (!drills.empty()) counters_ = &counters;
}

void FaultDrill::count(Step step) {
  const uint32_t passage = 1 + (*counters_)[static_cast<size_t>(step)].fetch_add(1);
  for (const Drill& drill : drills) {
    if (drill.step != step || drill.passage != passage) continue;
    kill_in(std::chrono::milliseconds(drill.delay_ms));
  }
}

}  // namespace wideep::transport
