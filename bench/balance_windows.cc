// SPDX-License-Identifier: Apache-2.0
//
// What plans from windows of load are worth on windows that they were not made for: real recordings
// and token traces of WIDEEP_DATA_DIR, every way of robust.h and the choice between them.
//
//   balance_windows
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "balance/robust.h"
#include "loads.h"
#include "recordings/statistics_load.h"
#include "recordings/token_trace.h"

namespace wideep::bench {
namespace {

using balance::RobustMethod;
using balance::Split;
using balance::WindowedLoad;
using Kind = RobustMethod::Kind;

struct Scenario {
  std::string name;
  balance::PlanShape shape;
  WindowedLoad before, later;
};

WindowedLoad part_of(const WindowedLoad& load, size_t begin, size_t end) {
  WindowedLoad part = load;
  for (size_t i = 0; i < load.load.size(); ++i) {
    const auto first = load.load[i].begin();
    part.load[i].assign(first + static_cast<std::ptrdiff_t>(begin),
                        first + static_cast<std::ptrdiff_t>(end));
  }
  return part;
}

Scenario cut(const std::string& name, const balance::PlanShape& shape, const WindowedLoad& load,
             double fraction) {
  const auto count = static_cast<size_t>(load.num_windows());
  const auto at = static_cast<size_t>(fraction * static_cast<double>(count));
  return {name, shape, part_of(load, 0, at), part_of(load, at, count)};
}

WindowedLoad read_windows(const std::string& file, const recordings::TraceShape& shape) {
  const auto statistics = recordings::read_trace(file, shape).value().statistics;
  return recordings::windowed_load(statistics, 1).value();
}

// Windows of all loads, one after the other, or in turn.
WindowedLoad joined(const std::vector<WindowedLoad>& loads, bool in_turn) {
  WindowedLoad result = loads[0];
  for (size_t layer = 0; layer < result.load.size(); ++layer) {
    auto& windows = result.load[layer];
    windows.clear();
    size_t longest = 0;
    for (const auto& load : loads) longest = std::max(longest, load.load[layer].size());
    for (size_t outer = 0; outer < (in_turn ? longest : loads.size()); ++outer) {
      for (size_t inner = 0; inner < (in_turn ? loads.size() : longest); ++inner) {
        const auto& from = loads[in_turn ? inner : outer].load[layer];
        const size_t w = in_turn ? outer : inner;
        if (w < from.size()) windows.push_back(from[w]);
      }
    }
  }
  return result;
}

void add_v2_lite(const std::string& data, std::vector<Scenario>* scenarios) {
  const balance::PlanShape shape{.num_experts = 64, .ep_size = 8, .num_slots = 72};
  std::vector<WindowedLoad> domains;
  for (const char* domain : {"translation", "law", "summary"}) {
    domains.push_back(
        read_windows(data + "/routing_trace_deepseek_v2lite/" + domain + ".ids.u8",
                     {.num_layers = 26, .top_k = 6, .num_experts = 64, .window_tokens = 1024}));
  }
  scenarios->push_back(cut("V2-Lite, law", shape, domains[1], 0.5));
  scenarios->push_back(cut("V2-Lite, 3 domains in turn", shape, joined(domains, true), 0.5));
  scenarios->push_back(cut("V2-Lite, third domain is new", shape, joined(domains, false), 0.67));
}

void add_gpt_oss(const std::string& data, std::vector<Scenario>* scenarios) {
  const balance::PlanShape shape{.num_experts = 32, .ep_size = 4, .num_slots = 40};
  for (const int tokens : {2048, 16384}) {
    const WindowedLoad load =
        read_windows(data + "/routing_trace_gptoss20b/trace_ids.u8",
                     {.num_layers = 24, .top_k = 4, .num_experts = 32, .window_tokens = tokens});
    scenarios->push_back(cut(fmt::format("gpt-oss-20b, {} tokens", tokens), shape, load, 0.5));
  }
}

// One recording after the other is the later one.
void add_deepseek(std::vector<Scenario>* scenarios) {
  const std::vector<Window> recordings = deepseek_windows();
  const balance::PlanShape shape{.num_experts = 256, .ep_size = 32, .num_slots = 288};
  for (size_t out = 0; out < recordings.size(); ++out) {
    WindowedLoad load{.num_experts = 256, .layers = {}, .load = {}};
    for (size_t layer = 0; layer < recordings[0].layers.size(); ++layer) {
      load.layers.push_back(static_cast<int>(layer));
      auto& windows = load.load.emplace_back();
      for (size_t i = 0; i < recordings.size(); ++i) {
        if (i != out) windows.push_back(recordings[i].layers[layer]);
      }
      windows.push_back(recordings[out].layers[layer]);
    }
    const size_t others = recordings.size() - 1;
    scenarios->push_back({"V3, others, then " + recordings[out].name, shape,
                          part_of(load, 0, others), part_of(load, others, others + 1)});
  }
}

void print_plan(const Scenario& scenario, Split split, const std::string& name,
                const std::optional<RobustMethod>& method) {
  const auto plan =
      balance::plan_robust(scenario.before, scenario.shape, {.split = split}, {.method = method})
          .value();
  const auto before = figures_in_windows(scenario.before, plan.model, false);
  const auto later = figures_in_windows(scenario.later, plan.model, false);
  const auto resplit = figures_in_windows(scenario.later, plan.model, true);
  fmt::print("{:<38}{:<10}{:<14}{:>8.2f}{:>8.2f} ±{:>6.2f}{:>8.2f}{:>9.2f}\n", scenario.name,
             split == Split::kEqual ? "equal" : "weighted",
             method ? name : name + ": " + name_of(plan.method), 100 * before.mean,
             100 * later.mean, 100 * later.std, 100 * later.worst, 100 * resplit.mean);
  std::fflush(stdout);
}

int run() {
  const char* data = std::getenv("WIDEEP_DATA_DIR");
  if (data == nullptr || deepseek_windows().empty()) {
    std::puts("WIDEEP_DATA_DIR has no recordings and traces: nothing to measure");
    return 0;
  }
  std::vector<Scenario> scenarios;
  add_v2_lite(data, &scenarios);
  add_gpt_oss(data, &scenarios);
  add_deepseek(&scenarios);
  fmt::print(
      "imbalance in % (max / mean - 1), mean over layers and windows\n{:<38}{:<10}{:<14}{:>8}"
      "{:>8} ±{:>6}{:>8}{:>9}\n",
      "load", "split", "way", "before", "later", "std", "worst", "re-split");
  for (const Scenario& scenario : scenarios) {
    for (const Split split : {Split::kEqual, Split::kWeighted}) {
      for (const char* way : {"sum", "std:1", "recent", "windows"}) {
        print_plan(scenario, split, way, balance::parse_robust_method(way).value());
      }
      print_plan(scenario, split, "auto", {});
    }
  }
  return 0;
}

}  // namespace
}  // namespace wideep::bench

int main() { return wideep::bench::run(); }
