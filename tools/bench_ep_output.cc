// SPDX-License-Identifier: Apache-2.0
#include "bench_ep_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

namespace wideep::tools {
namespace {

using bench::EpBenchOptions;
using bench::EpBenchReport;
using bench::EpTestReport;
using bench::Figure;
using bench::MpiRows;
using nlohmann::ordered_json;

// Half way between the longest way on one die and the shortest between two: measured, EPYC.
constexpr double kFarNs = 2 * 120.0;

// Four digits that matter.
std::string digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value < 10 ? 2 : 1);
}

// "bf16", "fp8 (0.516 × bf16)"
std::string form_of(kernels::RowFormat format, int hidden) {
  const std::string name(kernels::row_format_name(format));
  if (!kernels::is_coded(format)) return name;
  const auto coded = static_cast<double>(kernels::row_bytes(format, hidden));
  return fmt::format("{} ({:.3f} × bf16)", name, coded / (2.0 * hidden));
}

std::string what_travels(const EpBenchOptions& options) {
  const bench::EpGroup& group = options.group;
  return fmt::format("rows of {}, {} out, {} back; {} experts top {}, {} routing, seed {}",
                     options.hidden, form_of(options.rows, options.hidden),
                     form_of(options.results, options.hidden), group.num_experts, group.top_k,
                     bench::routing_name(group.routing), group.seed);
}

std::string flags_line(const EpBenchOptions& options, const EpBenchReport& report) {
  const double empty_ns = report.tests[0].round.median * 1e3;
  std::string line = fmt::format("flags   empty round {:.0f} ns", empty_ns);
  if (report.ping_pong_ns) {
    const double ping_pong = report.ping_pong_ns->median;
    line += fmt::format(" = {:.1f} × the flag ping-pong of {:.0f} ns (cores {})",
                        empty_ns / ping_pong, ping_pong, ping_pong < kFarNs ? "near" : "far");
  }
  const auto& peer = report.tests[0].mpi[0];
  if (options.with_mpi && peer) {
    line += fmt::format("; MPI's {:.0f} ns, {:.1f} × wideep's", peer->round.median * 1e3,
                        peer->ratio.median);
  }
  return line + "\n";
}

std::string row(const EpTestReport& test, int num_ranks) {
  return fmt::format("{:>6} {:>9} {:>9} {:>9} {:>9.0f} {:>9} {:>9} {:>7.1f} {:>9} {:>7.1f} %\n",
                     test.tokens, digits(test.round.median), digits(test.round.low),
                     digits(test.round.high), test.prepare * 1e3 / num_ranks, digits(test.dispatch),
                     digits(test.combine), test.bytes / test.round.median * 1e-3,
                     digits(test.copy.median), 100 * test.share.median);
}

std::string mpi_table(const EpBenchReport& report) {
  std::string text = fmt::format(
      "\nOpen MPI, µs, and its time / wideep's: a row per expert there and back; a row per rank "
      "there, per expert\nback; a row per rank there and back, which a combine that is not exact "
      "would compare with\n{:>6} {:>16} {:>8} {:>16} {:>8} {:>16} {:>8}\n",
      "tokens", "per expert", "ratio", "once per rank", "ratio", "per rank", "ratio");
  for (size_t i = 1; i < report.tests.size(); ++i) {
    text += fmt::format("{:>6}", report.tests[i].tokens);
    for (const auto& peer : report.tests[i].mpi) {
      text += fmt::format(" {:>16} {:>8.2f}", digits(peer->round.median), peer->ratio.median);
    }
    text += "\n";
  }
  return text;
}

ordered_json figure_json(const Figure& figure) {
  return {{"median", figure.median}, {"low", figure.low}, {"high", figure.high}};
}

ordered_json test_json(const EpTestReport& test, int num_ranks) {
  ordered_json json = {{"tokens", test.tokens},
                       {"rounds", test.num_rounds},
                       {"round_us", figure_json(test.round)},
                       {"mean_us", figure_json(test.mean)},
                       {"prepare_ns_per_peer", test.prepare * 1e3 / num_ranks},
                       {"dispatch_us", test.dispatch},
                       {"combine_us", test.combine},
                       {"cpu_us_per_rank", test.cpu},
                       {"waiting_cpu_us_per_rank", test.wait_cpu},
                       {"bytes", test.bytes}};
  if (test.tokens > 0) {
    json["gbps"] = test.bytes / test.round.median * 1e-3;
    json["copy_us"] = figure_json(test.copy);
    json["share"] = figure_json(test.share);
  }
  for (const MpiRows rows : bench::kMpiRows) {
    const auto& peer = test.mpi[static_cast<size_t>(rows)];
    if (!peer) continue;
    json["mpi"][std::string(bench::mpi_rows_name(rows))] = {{"round_us", figure_json(peer->round)},
                                                            {"ratio", figure_json(peer->ratio)}};
  }
  return json;
}

ordered_json options_json(const EpBenchOptions& options) {
  return {{"hidden", options.hidden},     {"dtype", "bf16"},
          {"combine", "exact"},           {"experts", options.group.num_experts},
          {"top_k", options.group.top_k}, {"routing", bench::routing_name(options.group.routing)},
          {"seed", options.group.seed},   {"repeats", options.repeats}};
}

}  // namespace

std::string ep_bench_text(const EpBenchOptions& options, const EpBenchReport& report) {
  const std::set<int> cores(report.processors.begin(), report.processors.end());
  std::string text = fmt::format(
      "ep      {} ranks on {} cores, kernels {}; {}\n"
      "run     median of {} blocks of some {} ms each, in turn with {}\n",
      options.group.num_ranks, cores.size(), report.isa, what_travels(options), options.repeats,
      options.block.count() / 1000, options.with_mpi ? "plain copies and MPI" : "plain copies");
  text += flags_line(options, report);
  text +=
      fmt::format("\n{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9} {:>9}\n", "tokens", "µs",
                  "low", "high", "prep ns", "dispatch", "combine", "GB/s", "copy µs", "share");
  for (size_t i = 1; i < report.tests.size(); ++i) {
    text += row(report.tests[i], options.group.num_ranks);
  }
  return options.with_mpi ? text + mpi_table(report) : text;
}

ordered_json ep_bench_json(const EpBenchOptions& options, const EpBenchReport& report) {
  ordered_json json = options_json(options);
  json["ranks"] = options.group.num_ranks;
  json["processors"] = report.processors;
  json["isa"] = report.isa;
  if (report.ping_pong_ns) json["ping_pong_ns"] = figure_json(*report.ping_pong_ns);
  for (const EpTestReport& test : report.tests) {
    json["tests"].push_back(test_json(test, options.group.num_ranks));
  }
  return json;
}

std::string ep_sweep_text(const EpBenchOptions& options,
                          const std::vector<bench::EpSweepRow>& rows) {
  std::string text = fmt::format(
      "ep      {} tokens on each rank; {}\n"
      "run     processor time of a rank in a round, median of {} groups of each size\n\n"
      "{:>6} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n",
      options.tokens[0], what_travels(options), options.repeats, "ranks", "µs", "low", "high",
      "waits", "KB", "relative");
  for (const bench::EpSweepRow& row : rows) {
    text += fmt::format("{:>6} {:>9} {:>9} {:>9} {:>9} {:>9.0f} {:>9}\n", row.num_ranks,
                        digits(row.cpu.median), digits(row.cpu.low), digits(row.cpu.high),
                        digits(row.wait_cpu), row.bytes_per_rank * 1e-3,
                        row.relative ? fmt::format("{:.2f}", *row.relative) : "");
  }
  return text;
}

ordered_json ep_sweep_json(const EpBenchOptions& options,
                           const std::vector<bench::EpSweepRow>& rows) {
  ordered_json json = options_json(options);
  json["tokens"] = options.tokens[0];
  for (const bench::EpSweepRow& row : rows) {
    ordered_json entry = {{"ranks", row.num_ranks},
                          {"cpu_us", figure_json(row.cpu)},
                          {"waiting_cpu_us", row.wait_cpu},
                          {"bytes_per_rank", row.bytes_per_rank}};
    if (row.relative) entry["relative"] = *row.relative;
    json["groups"].push_back(entry);
  }
  return json;
}

}  // namespace wideep::tools
