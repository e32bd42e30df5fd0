// SPDX-License-Identifier: Apache-2.0
//
// Two tables, because MPI has several ways to send the same rows and each is compared for itself.
// Figures have about three digits: more would change from run to run. The JSON has all of them.
#include "bench_ep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace wideep::tools {
namespace {

using measure::EpBenchOptions;
using measure::EpBenchReport;
using measure::EpTestReport;
using measure::Figure;
using measure::MpiRows;
using nlohmann::ordered_json;

// A flag's round trip above which the output calls two cores "far": half way between the slowest
// pair on one die and the fastest pair on two dies, as measured on an EPYC.
constexpr double kFarNs = 2 * 120.0;

// About three significant digits.
std::string digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : 1);
}

std::string_view combine_name(ep::Combine combine) {
  return combine == ep::Combine::kExact ? "exact" : "reduced";
}

std::string_view strategy_name(ep::Strategy strategy) {
  return strategy == ep::Strategy::kDispatch ? "dispatch" : "allgather";
}

// "bf16", "fp8 0.516": the format and its bytes as a share of those of bf16.
std::string form_of(kernels::RowFormat format, int hidden) {
  const std::string name(kernels::row_format_name(format));
  if (!kernels::is_coded(format)) return name;
  const auto coded = static_cast<double>(kernels::row_bytes(format, hidden));
  return fmt::format("{} {:.3f}", name, coded / (2.0 * hidden));
}

std::string what_travels(const EpBenchOptions& options) {
  const measure::EpGroup& group = options.group;
  return fmt::format("rows of {}; {} experts top {}, {} routing, seed {};{} sums {}",
                     options.hidden, group.num_experts, group.top_k,
                     measure::routing_name(group.routing), group.seed,
                     options.makes_results ? " results made in rounds;" : "",
                     options.sum == measure::EpSum::kRow ? "as bf16 rows" : "onto float32 rows");
}

std::string flags_line(const EpBenchOptions& options, const EpBenchReport& report) {
  const double empty_ns = report.tests[0].round.median * 1e3;
  std::string line = fmt::format("flags   empty round {:.0f} ns", empty_ns);
  if (report.ping_pong_ns) {
    const double ping_pong = report.ping_pong_ns->median;
    line += fmt::format(" = {:.1f} × the flag ping-pong of {:.0f} ns (cores {})",
                        empty_ns / ping_pong, ping_pong, ping_pong < kFarNs ? "near" : "far");
  }
  for (const auto& peer : report.tests[0].mpi) {
    if (!options.with_mpi || !peer) continue;
    line += fmt::format("; MPI's {:.0f} ns, {:.1f} × wideep's", peer->round.median * 1e3,
                        peer->ratio.median);
    break;
  }
  return line + "\n";
}

std::string test_columns(const EpTestReport& report, int hidden) {
  const measure::EpTest& test = report.test;
  return fmt::format("{:>6} {:<9} {:<7} {:<10} {:<11}", test.tokens, strategy_name(report.strategy),
                     combine_name(test.combine), form_of(test.form.rows, hidden),
                     form_of(test.form.results, hidden));
}
constexpr std::string_view kTestTitles = "tokens strategy  combine out        back       ";

std::string row(const EpTestReport& test, const EpBenchOptions& options) {
  return test_columns(test, options.hidden) +
         fmt::format(
             " {:>7} {:>7} {:>7} {:>7} {:>6.0f} {:>8} {:>8} {:>6.1f} {:>7} {:>6.1f} % {:>6.2f}\n",
             digits(test.round.median), digits(test.round.low), digits(test.round.high),
             digits(test.mean.median), test.prepare * 1e3 / options.group.num_ranks,
             digits(test.dispatch), digits(test.combine), test.bytes / test.mean.median * 1e-3,
             digits(test.copy.median), 100 * test.share.median, test.of_first_form.median);
}

std::string wideep_table(const EpBenchOptions& options, const EpBenchReport& report) {
  std::string text = fmt::format(
      "\n{} {:>7} {:>7} {:>7} {:>7} {:>6} {:>8} {:>8} {:>6} {:>7} {:>8} {:>6}\n", kTestTitles, "µs",
      "low", "high", "mean", "prep", "dispatch", "combine", "GB/s", "copy", "share", "form");
  for (size_t i = 1; i < report.tests.size(); ++i) text += row(report.tests[i], options);
  return text;
}

std::string_view what_mpi_sends(MpiRows rows) {
  if (rows == MpiRows::kPerExpert) return "a row per expert, there and back";
  return rows == MpiRows::kOncePerRank ? "a row per rank there, per expert back"
                                       : "a row per rank, there and back";
}

std::string mpi_table(const EpBenchOptions& options, const EpBenchReport& report) {
  std::string text = fmt::format("\n{} {:>7} {:>7} {:>8}  {}\n", kTestTitles, "MPI µs", "ratio",
                                 "of means", "what MPI sends");
  for (size_t i = 1; i < report.tests.size(); ++i) {
    for (const MpiRows rows : measure::kMpiRows) {
      const auto& peer = report.tests[i].mpi[static_cast<size_t>(rows)];
      if (!peer) continue;
      text += test_columns(report.tests[i], options.hidden) +
              fmt::format(" {:>7} {:>7.2f} {:>8.2f}  {}\n", digits(peer->round.median),
                          peer->ratio.median, peer->mean_ratio.median, what_mpi_sends(rows));
    }
  }
  return text;
}

ordered_json figure_json(const Figure& figure) {
  return {{"median", figure.median}, {"low", figure.low}, {"high", figure.high}};
}

ordered_json form_json(const measure::EpTest& test, int hidden) {
  return {{"tokens", test.tokens},
          {"combine", combine_name(test.combine)},
          {"dtype", kernels::row_format_name(test.form.rows)},
          {"combine_dtype", kernels::row_format_name(test.form.results)},
          {"row_bytes", kernels::row_bytes(test.form.rows, hidden)},
          {"result_bytes", kernels::row_bytes(test.form.results, hidden)}};
}

ordered_json test_json(const EpTestReport& test, const EpBenchOptions& options) {
  ordered_json json = form_json(test.test, options.hidden);
  json.update({{"strategy", strategy_name(test.strategy)},
               {"rounds", test.num_rounds},
               {"round_us", figure_json(test.round)},
               {"mean_us", figure_json(test.mean)},
               {"prepare_ns_per_peer", test.prepare * 1e3 / options.group.num_ranks},
               {"dispatch_us", test.dispatch},
               {"combine_us", test.combine},
               {"cpu_us_per_rank", test.cpu},
               {"waiting_cpu_us_per_rank", test.wait_cpu},
               {"bytes", test.bytes}});
  if (test.test.tokens > 0) {
    json["gbps"] = test.bytes / test.mean.median * 1e-3;
    json["copy_us"] = figure_json(test.copy);
    json["share"] = figure_json(test.share);
    json["of_first_form"] = figure_json(test.of_first_form);
  }
  for (const MpiRows rows : measure::kMpiRows) {
    const auto& peer = test.mpi[static_cast<size_t>(rows)];
    if (!peer) continue;
    json["mpi"][std::string(measure::mpi_rows_name(rows))] = {
        {"round_us", figure_json(peer->round)},
        {"ratio", figure_json(peer->ratio)},
        {"ratio_of_means", figure_json(peer->mean_ratio)}};
  }
  return json;
}

ordered_json options_json(const EpBenchOptions& options) {
  return {{"hidden", options.hidden},
          {"experts", options.group.num_experts},
          {"top_k", options.group.top_k},
          {"routing", measure::routing_name(options.group.routing)},
          {"seed", options.group.seed},
          {"repeats", options.repeats},
          {"results", options.makes_results ? "made" : "ready"},
          {"sum", measure::sum_name(options.sum)}};
}

}  // namespace

std::string ep_bench_text(const EpBenchOptions& options, const EpBenchReport& report) {
  const std::set<int> cores(report.processors.begin(), report.processors.end());
  const std::string text = fmt::format(
      "ep      {} ranks on {} cores, kernels {}; {}\n"
      "run     medians of {} turns; in each, blocks of some {} ms of rounds, {}\n",
      options.group.num_ranks, cores.size(), report.isa, what_travels(options), options.repeats,
      options.block.count() / 1000,
      options.with_mpi ? "of plain copies and of MPI's rounds" : "and of plain copies");
  return text + flags_line(options, report) + wideep_table(options, report) +
         (options.with_mpi ? mpi_table(options, report) : "");
}

ordered_json ep_bench_json(const EpBenchOptions& options, const EpBenchReport& report) {
  ordered_json json = options_json(options);
  json["ranks"] = options.group.num_ranks;
  json["processors"] = report.processors;
  json["isa"] = report.isa;
  if (report.ping_pong_ns) json["ping_pong_ns"] = figure_json(*report.ping_pong_ns);
  for (const EpTestReport& test : report.tests) json["tests"].push_back(test_json(test, options));
  return json;
}

std::string ep_sweep_text(const EpBenchOptions& options,
                          const std::vector<measure::EpSweepRow>& rows) {
  std::string text = fmt::format(
      "ep      {} tokens on each rank; {}\n"
      "run     processor time of a rank in a round, median of {} groups of each size\n\n"
      "{:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>9} {:>8}\n",
      options.tokens[0], what_travels(options), options.repeats, "ranks", "µs", "low", "high",
      "waits", "relative", "copies", "relative", "KB");
  const auto relative = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.2f}", *value) : "";
  };
  for (const measure::EpSweepRow& row : rows) {
    text += fmt::format("{:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>8} {:>9} {:>8.0f}\n", row.num_ranks,
                        digits(row.cpu.median), digits(row.cpu.low), digits(row.cpu.high),
                        digits(row.wait_cpu), relative(row.relative), digits(row.copy_cpu),
                        relative(row.relative_copy), row.bytes_per_rank * 1e-3);
  }
  return text;
}

ordered_json ep_sweep_json(const EpBenchOptions& options,
                           const std::vector<measure::EpSweepRow>& rows) {
  ordered_json json = options_json(options);
  json["test"] = form_json(options.tests().back(), options.hidden);
  for (const measure::EpSweepRow& row : rows) {
    ordered_json entry = {{"ranks", row.num_ranks},
                          {"cpu_us", figure_json(row.cpu)},
                          {"waiting_cpu_us", row.wait_cpu},
                          {"copy_cpu_us", row.copy_cpu},
                          {"bytes_per_rank", row.bytes_per_rank}};
    if (row.relative) entry["relative"] = *row.relative;
    if (row.relative_copy) entry["relative_copy"] = *row.relative_copy;
    json["groups"].push_back(entry);
  }
  return json;
}

}  // namespace wideep::tools
