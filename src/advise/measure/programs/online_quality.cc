// SPDX-License-Identifier: Apache-2.0
//
// The quality of the online balancer on recorded traces whose text changes: imbalance and moves for
// each policy and share update, next to the goals.
//
//   online_quality
//
// Traces of WIDEEP_DATA_DIR are replayed as in `wideep balance replay`: iterations of 2,048 tokens;
// a plan is in use two iterations after the counts that it was made from; all layers in turn
// (policy trt: so many per iteration that a window of 16,384 tokens covers all layers once). "tuned
// on": the order of requests on which the defaults of PolicyOptions were chosen; "held out": other
// orders and sequences of domains.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "online/replay.h"

namespace wideep::measure {
namespace {

using online::PolicyKind;
using online::ReplayOptions;
using online::ReplayResult;
using online::RequestTrace;
using online::ShareUpdate;

constexpr double kGoalImbalance = 1.0;  // per cent above the bound
constexpr double kGoalMoves = 1.5;      // per layer and window

struct Scenario {
  std::string name;
  const RequestTrace* trace;
  balance::PlanShape shape;
  online::StreamOptions stream;
};

ReplayResult run(const Scenario& scenario, PolicyKind policy, ShareUpdate share_update) {
  const int layers = scenario.trace->shape.num_layers;
  ReplayOptions options{.shape = scenario.shape, .policy = {}, .stream = scenario.stream};
  options.policy.policy = policy;
  options.policy.share_update = share_update;
  options.policy.layer_updates_per_iter = policy == PolicyKind::kTrt ? (layers + 7) / 8 : layers;
  if (policy == PolicyKind::kTrt) options.planner = "trt";
  return online::replay(*scenario.trace, options).value();
}

void print_line(const Scenario& scenario, PolicyKind policy, ShareUpdate share_update) {
  const ReplayResult result = run(scenario, policy, share_update);
  const online::ReplayFigures& mean = result.mean;
  const bool judged = policy == PolicyKind::kWideep && share_update == ShareUpdate::kIteration;
  const bool met = 100 * (mean.online - mean.perfect) <= kGoalImbalance &&
                   result.moves_per_layer_and_window <= kGoalMoves;
  const std::string split =
      policy == PolicyKind::kTrt ? "equal" : std::string(online::name_of(share_update));
  fmt::print("{:<44}{:<8}{:<10}{:>7.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>8.2f}{:>9.2f}  {}\n",
             scenario.name, online::name_of(policy), split, 100 * mean.off, 100 * mean.planned,
             100 * mean.online, 100 * mean.past, 100 * mean.perfect,
             result.moves_per_layer_and_window,
             1e3 * result.plan_seconds / static_cast<double>(result.num_iterations),
             judged ? (met ? "yes" : "no") : "");
  std::fflush(stdout);
}

std::optional<RequestTrace> read(const std::string& directory,
                                 const recordings::TraceShape& shape) {
  auto trace = online::read_request_trace(directory, shape);
  if (!trace.ok()) return {};
  return std::move(trace).value();
}

void add_gpt_oss(const RequestTrace& trace, std::vector<Scenario>* scenarios) {
  const balance::PlanShape four{.num_experts = 32, .ep_size = 4, .num_slots = 40};
  const balance::PlanShape eight{.num_experts = 32, .ep_size = 8, .num_slots = 40};
  for (const auto& [shape, name] :
       {std::pair(four, "gpt-oss R=4 S=40"), std::pair(eight, "gpt-oss R=8 S=40")}) {
    const auto add = [&, &each = shape, &what = name](const char* how,
                                                      const online::StreamOptions& stream) {
      scenarios->push_back({fmt::format("{}, {}", what, how), &trace, each, stream});
    };
    add("64 at once (tuned on)", {});
    add("domains reversed (held out)", {.domains = {11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0}});
    add("other order (held out)", {.seed = 1});
    add("16 at once", {.in_flight = 16});
    add("1 at once", {.in_flight = 1});
  }
}

void add_v2_lite(const RequestTrace& trace, std::vector<Scenario>* scenarios) {
  const balance::PlanShape shape{.num_experts = 64, .ep_size = 8, .num_slots = 72};
  const auto add = [&](const char* how, const online::StreamOptions& stream) {
    scenarios->push_back({fmt::format("V2-Lite R=8 S=72, {}", how), &trace, shape, stream});
  };
  add("10 cycles (tuned on)", {.cycles = 10, .in_flight = 1});
  add("reversed (held out)", {.domains = {2, 1, 0}, .cycles = 10, .in_flight = 1, .seed = 1});
  add("one new (held out)",
      {.domains = {1, 0, 1, 0, 1, 2}, .cycles = 5, .in_flight = 1, .seed = 2});
  add("10 cycles, 16 at once", {.cycles = 10, .in_flight = 16});
  add("4 cycles, 1 at once", {.cycles = 4, .in_flight = 1});
}

int run() {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  const std::string directory = data == nullptr ? "" : data;
  const auto gpt_oss = read(directory + "/routing_trace_gptoss20b",
                            {.num_layers = 24, .top_k = 4, .num_experts = 32});
  const auto v2_lite = read(directory + "/routing_trace_deepseek_v2lite",
                            {.num_layers = 26, .top_k = 6, .num_experts = 64, .first_layer = 1});
  if (!gpt_oss || !v2_lite) {
    std::puts("WIDEEP_DATA_DIR has no request traces: nothing to measure");
    return 0;
  }
  std::vector<Scenario> scenarios;
  add_gpt_oss(*gpt_oss, &scenarios);
  add_v2_lite(*v2_lite, &scenarios);
  fmt::print(
      "imbalance in % (max / mean - 1), mean over layers and iterations of 2,048 tokens; moves per "
      "layer and 16,384 tokens\ngoal: with shares of the iteration, online <= perfect + {} at <= "
      "{} "
      "moves\n{:<44}{:<8}{:<10}{:>7}{:>8}{:>8}{:>8}{:>8}{:>8}{:>9}  met\n",
      kGoalImbalance, kGoalMoves, "trace", "policy", "shares", "off", "static", "online", "past",
      "perfect", "moves", "ms/iter");
  for (const Scenario& scenario : scenarios) {
    print_line(scenario, PolicyKind::kWideep, ShareUpdate::kIteration);
    print_line(scenario, PolicyKind::kWideep, ShareUpdate::kWindow);
    print_line(scenario, PolicyKind::kTrt, ShareUpdate::kIteration);
  }
  return 0;
}

}  // namespace
}  // namespace wideep::measure

int main() { return wideep::measure::run(); }
