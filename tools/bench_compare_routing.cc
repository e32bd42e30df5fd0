// SPDX-License-Identifier: Apache-2.0
//
// wideep bench compare-routing: measures how much faster a run would be if all ranks had equal
// loads.
//
// Nothing is estimated: the same run is made with a router that deals its choices evenly. Both run
// in each repeat, in turn, and measure/routing_verdict.h judges the pairs.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "formats/json_text.h"
#include "load_options.h"
#include "measure/serving/routing_verdict.h"

namespace wideep::tools {
namespace {

using measure::RoutingFigures;
using measure::RoutingVerdict;
using nlohmann::ordered_json;

struct Options {
  LoadOptions load;
  int repeats = 3;
  bool json = false;
};

Result<measure::ThroughputOptions> bench_options(const Options& options) {
  WIDEEP_TRY(refuse_recording(options.load.ranks.record, "compare-routing",
                              "it runs several times, with two routers"));
  WIDEEP_TRY_ASSIGN(measure::ThroughputOptions result, read_load_options(options.load));
  if (result.run.perfect_router) {
    return invalid_input(
        "--perfect-router (ENABLE_PERFECT_ROUTER): compare-routing runs both routers; leave it "
        "out");
  }
  if (result.run.parallel.sizes.moe_ep == 1) {
    return invalid_input(
        "compare-routing: all experts are on one rank, so there is no imbalance to measure; give "
        "--ranks 2 or more");
  }
  if (!result.run.iteration_log.empty()) {
    return invalid_input(
        "--iteration-log: compare-routing runs several times, which would overwrite the log; leave "
        "it out");
  }
  return result;
}

Result<RoutingFigures> run_once(measure::ThroughputOptions options, bool perfect) {
  options.run.perfect_router = perfect;
  WIDEEP_TRY_ASSIGN(const measure::ThroughputRun run, run_with_progress(options));
  return measure::figures_of(run);
}

// Both routers in every repeat, so that other load on the machine slows both down alike.
Result<std::vector<measure::RoutingPair>> run_pairs(const measure::ThroughputOptions& options,
                                                    int repeats) {
  std::vector<measure::RoutingPair> pairs;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    measure::RoutingPair pair;
    log::info("run {} of {}: the model's router", repeat + 1, repeats);
    WIDEEP_TRY_ASSIGN(pair.learned, run_once(options, false));
    log::info("run {} of {}: perfect router", repeat + 1, repeats);
    WIDEEP_TRY_ASSIGN(pair.perfect, run_once(options, true));
    pairs.push_back(pair);
  }
  return pairs;
}

std::string row(const char* name, const RoutingFigures& of) {
  return fmt::format("{:<10}{:>18.1f}{:>15.1f}{:>12.1f}{:>12.3f}\n", name, of.critical_path_ms,
                     of.critical_path_experts_ms, of.tokens_per_second, of.imbalance_ratio);
}

std::string text_of(const RoutingVerdict& verdict, int repeats) {
  return fmt::format("{:<10}{:>18}{:>15}{:>12}{:>12}\n", "router", "critical path ms",
                     "of it experts", "tokens/s", "imbalance") +
         row("learned", verdict.medians.learned) + row("perfect", verdict.medians.perfect) +
         fmt::format("\nmedians of {} runs each, in turn; gain {:.1f} % ({:.1f} to {:.1f})\n{}\n",
                     repeats, 100 * verdict.gain, 100 * verdict.low, 100 * verdict.high,
                     verdict.text());
}

ordered_json json_of(const RoutingFigures& of) {
  return {{"critical_path_ms", of.critical_path_ms},
          {"critical_path_experts_ms", of.critical_path_experts_ms},
          {"tokens_per_second", of.tokens_per_second},
          {"imbalance_ratio", of.imbalance_ratio}};
}

ordered_json json_of(const RoutingVerdict& verdict, int repeats) {
  return {{"repeats", repeats},
          {"learned", json_of(verdict.medians.learned)},
          {"perfect", json_of(verdict.medians.perfect)},
          {"critical_path_gain", verdict.gain},
          {"critical_path_gain_low", verdict.low},
          {"critical_path_gain_high", verdict.high},
          {"imbalance_matters", verdict.imbalance_matters},
          {"verdict", verdict.text()}};
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const measure::ThroughputOptions bench, bench_options(options));
  WIDEEP_TRY_ASSIGN(const auto pairs, run_pairs(bench, options.repeats));
  const RoutingVerdict verdict = measure::judge_routing(pairs);
  const std::string text = options.json
                               ? formats::json_text(json_of(verdict, options.repeats), 2) + "\n"
                               : text_of(verdict, options.repeats);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

void add_bench_compare_routing_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("compare-routing",
                        "Measure what perfect balance would gain: the model's router against a "
                        "perfectly balanced one");
  auto options = std::make_shared<Options>();
  add_load_options(command, &options->load);
  command.add_option("--repeat", options->repeats, "Runs with each router")
      .range(1, 1000)
      .show_default();
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
