// SPDX-License-Identifier: Apache-2.0
//
// What the steps of dispatch and combine beside the copying of rows cost a rank in groups of
// different sizes, with the same number of tokens and of rows per rank (measure/ep/played_group.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "base/cpu_time.h"
#include "base/try.h"
#include "command_line/command_line.h"
#include "measure/ep/played_group.h"

namespace wideep::measure {
namespace {

struct Options {
  std::vector<int> ranks = {8, 16, 32, 64};
  std::vector<int> tokens = {0, 4, 16, 64};
  PlayedOptions group;
  int turns = 15;
};

double median_of(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
  return values[values.size() / 2];
}

struct Case {
  int ranks = 0, tokens = 0;
  std::unique_ptr<PlayedGroup> group;
  int rounds = 1;
  PlayedTimes medians;  // of each turn
};

Result<Case> make_case(const Options& options, int ranks, int tokens) {
  constexpr double kTurnNs = 4e6;  // of rounds of one group
  PlayedOptions played = options.group;
  played.num_ranks = ranks;
  played.tokens = tokens;
  WIDEEP_TRY_ASSIGN(auto group, PlayedGroup::create(played));
  const int64_t start = base::wall_ns();
  PlayedTimes times;
  for (int i = 0; i < 3; ++i) WIDEEP_TRY(group->round(&times));  // touches all memory
  const double round_ns = static_cast<double>(base::wall_ns() - start) / 3;
  const int rounds = std::clamp(static_cast<int>(kTurnNs / round_ns), 5, 500);
  return Case{ranks, tokens, std::move(group), rounds, {}};
}

void print(const Options& options, const std::vector<Case>& cases) {
  fmt::print(
      "{} experts, top {}, rows of {}; ns of a rank and call; medians of {} turns\n"
      "               publish    sum counts of all          list rows by slot       add up "
      "results\n"
      "tokens  ranks   counts   copy   sums   rows   copy  lists  ns/row  rows   copy   sums  "
      "ns/row\n",
      options.group.num_experts, options.group.top_k, options.group.hidden, options.turns);
  std::map<int, double> without_rows;  // by ranks
  for (const Case& each : cases) {
    const auto ns = [&](PlayedStep step) {
      return median_of(each.medians[static_cast<size_t>(step)]);
    };
    const int received = each.group->rows_received();
    const int sent = each.tokens * options.group.top_k;
    if (each.tokens == 0) without_rows[each.ranks] = ns(PlayedStep::kExpand);
    const auto of_row = [](double time, int rows) {
      return rows == 0 ? std::string("-") : fmt::format("{:.1f}", time / rows);
    };
    const double lists = ns(PlayedStep::kExpand) - without_rows[each.ranks];
    fmt::print(
        "{:>6}{:>7}{:>9.0f}{:>7.0f}{:>7.0f}{:>7}{:>7.0f}{:>7.0f}{:>8}{:>6}{:>7.0f}{:>7.0f}"
        "{:>8}\n",
        each.tokens, each.ranks, ns(PlayedStep::kPrepare), ns(PlayedStep::kCopyCounts),
        ns(PlayedStep::kCounts), received, ns(PlayedStep::kCopyLists), ns(PlayedStep::kExpand),
        of_row(lists, received), sent, ns(PlayedStep::kCopyResults), ns(PlayedStep::kFinalize),
        of_row(ns(PlayedStep::kFinalize), sent));
  }
}

// A turn visits every group once, so that a slow phase of the machine affects all alike.
Status measure(Options options) {
  if (std::ranges::find(options.tokens, 0) == options.tokens.end()) {
    options.tokens.insert(options.tokens.begin(), 0);  // what rows cost is beyond that
  }
  std::ranges::sort(options.tokens);
  std::vector<Case> cases;
  for (const int tokens : options.tokens) {
    for (const int ranks : options.ranks) {
      WIDEEP_TRY_ASSIGN(Case made, make_case(options, ranks, tokens));
      cases.push_back(std::move(made));
    }
  }
  for (int turn = 0; turn < options.turns; ++turn) {
    for (Case& each : cases) {
      PlayedTimes times;
      for (int i = 0; i < each.rounds; ++i) WIDEEP_TRY(each.group->round(&times));
      for (size_t step = 0; step < kPlayedSteps; ++step) {
        each.medians[step].push_back(median_of(std::move(times[step])));
      }
    }
  }
  print(options, cases);
  return {};
}

}  // namespace
}  // namespace wideep::measure

int main(int argc, char** argv) {
  wideep::command_line::Program program(
      "Measures what the steps of dispatch and combine beside copying cost a rank, by group size");
  wideep::measure::Options options;
  program.add_option("--ranks", options.ranks, "Sizes of groups, each a divisor of --experts");
  program.add_option("--tokens", options.tokens, "Tokens of each rank");
  program.add_option("--hidden", options.group.hidden, "Elements of a row").positive();
  program.add_option("--experts", options.group.num_experts, "Experts").positive();
  program.add_option("--top-k", options.group.top_k, "Experts of a token").range(1, 16);
  program.add_option("--turns", options.turns, "Turns; times are medians over them").positive();
  if (const auto code = program.parse_main(argc, argv)) return *code;
  const wideep::Status status = wideep::measure::measure(options);
  if (!status.ok()) fmt::print(stderr, "auxiliary_cost: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
