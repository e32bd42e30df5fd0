// SPDX-License-Identifier: Apache-2.0
//
// wideep bench ep: times dispatch and combine, next to plain copies and, if asked, MPI.
//
// One test for each combination of the lists of options, in one group of ranks, so that all are
// measured under the same conditions; a sweep starts groups of other sizes, and therefore takes one
// test only.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/progress.h"
#include "base/try.h"
#include "bench_ep_output.h"
#include "commands.h"
#include "formats/json_text.h"

namespace wideep::tools {
namespace {

struct Options {
  measure::EpBenchOptions bench{.tokens = {1, 16, 64, 256}};
  std::string routing = "random";
  std::vector<std::string> dtypes = {"bf16"};
  std::vector<std::string> combine_dtypes;  // empty: bf16
  std::vector<std::string> combines = {"exact"};
  std::string strategy = "auto";
  std::string sum = "row";
  std::string results = "ready";
  std::string baseline;
  std::vector<int> sweep;
  int block_ms = 50;
  bool json = false;
};

Result<std::string> measure_group(const Options& options) {
  const auto report = [&] {
    base::Progress progress("measuring", options.bench.repeats, "turns");
    return measure::run_ep_bench(options.bench, [&] { progress.step(); });
  }();
  if (!report.ok()) return report.status();
  return options.json ? formats::json_text(ep_bench_json(options.bench, *report), 2) + "\n"
                      : ep_bench_text(options.bench, *report);
}

Result<std::string> measure_sweep(const Options& options) {
  const auto groups = static_cast<int64_t>(options.sweep.size()) * options.bench.repeats;
  const auto rows = [&] {
    base::Progress progress("measuring", groups, "groups");
    return measure::run_ep_sweep(options.bench, options.sweep, [&] { progress.step(); });
  }();
  if (!rows.ok()) return rows.status();
  return options.json ? formats::json_text(ep_sweep_json(options.bench, *rows), 2) + "\n"
                      : ep_sweep_text(options.bench, *rows);
}

Status check_sweep(const Options& options) {
  if (!options.baseline.empty()) {
    return invalid_input(
        "--sweep-ranks and --baseline: a sweep is not compared with a baseline; leave one of them "
        "out");
  }
  const size_t tests = options.bench.tests().size() - 1;  // without the empty round
  if (tests == 1) return {};
  return invalid_input(
      fmt::format("--sweep-ranks: expected one test, found {}; give --tokens, --combine and "
                  "--dtype one value each",
                  tests));
}

// The i-th of --dtype goes with the i-th of --combine-dtype.
Status read_forms(const Options& options, std::vector<measure::EpForm>* forms) {
  std::vector<std::string> results = options.combine_dtypes;
  if (results.empty()) results.assign(options.dtypes.size(), "bf16");
  if (results.size() != options.dtypes.size()) {
    return invalid_input(
        fmt::format("--combine-dtype: expected as many values as --dtype has ({}), found {}",
                    options.dtypes.size(), results.size()));
  }
  forms->clear();
  for (size_t i = 0; i < results.size(); ++i) {
    forms->push_back({kernels::row_format_from_name(options.dtypes[i]).value(),
                      kernels::row_format_from_name(results[i]).value()});
  }
  return {};
}

Status run(const Options& given) {
  Options options = given;
  WIDEEP_TRY_ASSIGN(options.bench.group.routing, measure::routing_of(options.routing));
  WIDEEP_TRY_ASSIGN(options.bench.sum, measure::sum_of(options.sum));
  options.bench.makes_results = options.results == "made";
  WIDEEP_TRY(read_forms(options, &options.bench.forms));
  options.bench.combines.clear();
  for (const std::string& name : options.combines) {
    options.bench.combines.push_back(name == "exact" ? ep::Combine::kExact : ep::Combine::kReduced);
  }
  if (options.strategy != "auto") {
    options.bench.strategy =
        options.strategy == "dispatch" ? ep::Strategy::kDispatch : ep::Strategy::kAllGather;
  }
  options.bench.with_mpi = !options.baseline.empty();
  options.bench.block = std::chrono::milliseconds(options.block_ms);
  if (!options.sweep.empty()) WIDEEP_TRY(check_sweep(options));
  WIDEEP_TRY_ASSIGN(const std::string text,
                    options.sweep.empty() ? measure_group(options) : measure_sweep(options));
  std::fputs(text.c_str(), stdout);
  return {};
}

void add_what_options(command_line::Command command, Options& options) {
  measure::EpBenchOptions& bench = options.bench;
  command.add_option("--ranks", bench.group.num_ranks, "Rank processes on this machine")
      .range(1, 1024)
      .show_default();
  command.add_option("--tokens", bench.tokens, "Tokens per rank; one test for each value: A,B,C")
      .separate_values_by(',')
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--hidden", bench.hidden, "Elements of a row (hidden size)")
      .range(1, 1 << 20)
      .show_default();
  command.add_option("--experts", bench.group.num_experts, "Number of experts of the layer")
      .range(1, 1 << 16)
      .show_default();
  command.add_option("--top-k", bench.group.top_k, "Experts per token")
      .range(1, 1024)
      .show_default();
  command
      .add_option("--combine", options.combines,
                  "What combine brings back per token: exact, one row per expert; reduced, one row "
                  "per rank. One test for each value: A,B")
      .separate_values_by(',')
      .one_of({"exact", "reduced"})
      .show_default();
  command
      .add_option(
          "--strategy", options.strategy,
          "dispatch: each rank sends rows to the ranks of their slots; allgather: each rank "
          "publishes its rows for all ranks to read; auto: the one that moves fewer bytes")
      .one_of({"auto", "dispatch", "allgather"})
      .show_default();
  command
      .add_option("--sum", options.sum,
                  "How a round ends: row, each token's sum is written as a bf16 row; residual, it "
                  "is added to a float32 row, as in the engine")
      .one_of({"row", "residual"})
      .show_default();
  command
      .add_option("--results", options.results,
                  "ready: the experts' results are written before the rounds; made: every round "
                  "writes them, as experts do, and converts them to --combine-dtype")
      .one_of({"ready", "made"})
      .show_default();
  const std::vector<std::string> formats = {"bf16", "fp8", "nvfp4"};
  command
      .add_option("--dtype", options.dtypes, "Row format of dispatch; one test for each value: A,B")
      .separate_values_by(',')
      .one_of(formats)
      .show_default();
  command
      .add_option("--combine-dtype", options.combine_dtypes,
                  "Row format of combine, one value for each of --dtype (default: bf16)")
      .separate_values_by(',')
      .one_of(formats);
  command
      .add_option("--routing", options.routing,
                  "random: experts chosen at random; hot: all tokens choose the same experts; "
                  "spread: each token goes to as many ranks as possible")
      .one_of({"random", "hot", "spread"})
      .show_default();
  command.add_option("--seed", bench.group.seed, "Seed of the routing")
      .range(uint64_t{0}, uint64_t{1} << 62)
      .show_default();
}

void add_how_options(command_line::Command command, Options& options) {
  command
      .add_option("--baseline", options.baseline,
                  "Also measure the same exchange with another library: mpi (Open MPI's Alltoallv)")
      .one_of({"mpi"});
  command
      .add_option("--sweep-ranks", options.sweep,
                  "Measure instead the processor time per rank in groups of A,B,C ranks, with "
                  "--tokens N per rank")
      .separate_values_by(',')
      .range(1, 1024);
  command
      .add_option("--repeat", options.bench.repeats,
                  "Measured blocks of each kind (wideep, copies, MPI), which take turns")
      .range(1, 1000)
      .show_default();
  command
      .add_option("--block", options.block_ms,
                  "Duration of a block of rounds in ms; a block has at most 2048 rounds")
      .range(1, 10'000)
      .show_default();
  command.add_flag("--json", options.json, "Only JSON on stdout");
}

}  // namespace

void add_bench_ep_command(command_line::Command bench, Status* status) {
  const command_line::Command command =
      bench.add_command("ep", "Time dispatch and combine, next to plain copies and, if asked, MPI");
  auto options = std::make_shared<Options>();
  add_what_options(command, *options);
  add_how_options(command, *options);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
