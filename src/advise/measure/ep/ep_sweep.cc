// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_sweep.h"

#include <algorithm>

#include "base/try.h"

namespace wideep::measure {
namespace {

EpBenchOptions group_options(const EpBenchOptions& options, int num_ranks) {
  EpBenchOptions group = options;
  group.group.num_ranks = num_ranks;
  group.with_mpi = false;
  group.repeats = 1;  // a repeat is one turn over all groups, so that all see the same machine
  return group;
}

EpSweepRow row_of(int num_ranks, const std::vector<EpTestReport>& repeats) {
  std::vector<double> cpu, wait, copy;
  for (const EpTestReport& test : repeats) {
    cpu.push_back(test.cpu);
    wait.push_back(test.wait_cpu);
    copy.push_back(test.copy_cpu);
  }
  return {.num_ranks = num_ranks,
          .cpu = figure_of(cpu),
          .wait_cpu = figure_of(wait).median,
          .copy_cpu = figure_of(copy).median,
          .bytes_per_rank = repeats[0].bytes / num_ranks};
}

// Below top_k ranks the number of rows per token grows with the group; only above it is the cost
// comparable.
void relate(int top_k, std::vector<EpSweepRow>* rows) {
  const auto wide = [=](const EpSweepRow& row) { return row.num_ranks >= top_k; };
  const auto first = std::find_if(rows->begin(), rows->end(), wide);
  if (first == rows->end()) return;
  const double cpu = first->cpu.median, copy_cpu = first->copy_cpu;
  for (EpSweepRow& row : *rows) {
    if (!wide(row)) continue;
    row.relative = row.cpu.median / cpu;
    row.relative_copy = row.copy_cpu / copy_cpu;
  }
}

}  // namespace

Result<std::vector<EpSweepRow>> run_ep_sweep(const EpBenchOptions& options,
                                             const std::vector<int>& ranks,
                                             const std::function<void()>& on_group) {
  for (const int num_ranks : ranks) WIDEEP_TRY(check_options(group_options(options, num_ranks)));
  std::vector<std::vector<EpTestReport>> tests(ranks.size());
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      WIDEEP_TRY_ASSIGN(const EpBenchReport report,
                        run_ep_bench(group_options(options, ranks[i]), [] {}));
      tests[i].push_back(report.tests.back());
      on_group();
    }
  }
  std::vector<EpSweepRow> rows;
  for (size_t i = 0; i < ranks.size(); ++i) rows.push_back(row_of(ranks[i], tests[i]));
  relate(options.group.top_k, &rows);
  return rows;
}

}  // namespace wideep::measure
