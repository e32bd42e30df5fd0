// SPDX-License-Identifier: Apache-2.0
//
// Quotients are taken turn by turn, and then their median: blocks of different turns had different
// machines. The parent only collects what rank 0 reports after each block. One segment serves all
// tests, as large as the largest needs.
#include "measure/ep/ep_run.h"

#include <algorithm>
#include <cstdlib>

#include "base/machine.h"
#include "base/try.h"
#include "measure/ep/ep_rank.h"
#include "measure/limits/limits.h"

namespace wideep::measure {
namespace {

using Blocks = std::vector<EpBlock>;  // in the order of the turns

std::vector<double> values(const Blocks& blocks, double EpBlock::* member) {
  std::vector<double> found;
  for (const EpBlock& block : blocks) found.push_back(block.*member);
  return found;
}

double median(const Blocks& blocks, double EpBlock::* member) {
  return figure_of(values(blocks, member)).median;
}

// Quotients turn by turn, because only measurements of the same turn had the same machine.
Figure quotient(const Blocks& a, const Blocks& b, double EpBlock::* member) {
  std::vector<double> quotients;
  for (size_t i = 0; i < a.size(); ++i) quotients.push_back(a[i].*member / b[i].*member);
  return figure_of(quotients);
}

// The samples that rank 0 has reported, by test and kind.
class Samples {
 public:
  explicit Samples(std::vector<EpTest> tests) : tests_(std::move(tests)), blocks_(tests_.size()) {}

  void add(const EpSample& sample) { blocks_[sample.test][sample.kind].push_back(sample.block); }
  bool turn_is_over() const { return blocks_.back()[EpSample::kRounds].size() > turns_; }
  void next_turn() { ++turns_; }
  std::vector<EpTestReport> reports() const;
  std::optional<Figure> ping_pong_ns() const;

 private:
  static constexpr size_t kKinds = EpSample::kMpi + std::size(kMpiRows);

  EpTestReport report(size_t test) const;
  size_t in_first_form(size_t test) const;

  std::vector<EpTest> tests_;
  std::vector<std::array<Blocks, kKinds>> blocks_;
  size_t turns_ = 0;
};

// The test with the same tokens and combine in the first form: EpBenchOptions::tests() lists it
// first.
size_t Samples::in_first_form(size_t test) const {
  for (size_t i = 0; i < test; ++i) {
    const bool same =
        tests_[i].tokens == tests_[test].tokens && tests_[i].combine == tests_[test].combine;
    if (same) return i;
  }
  return test;
}

EpTestReport Samples::report(size_t test) const {
  const Blocks& rounds = blocks_[test][EpSample::kRounds];
  const Blocks& copies = blocks_[test][EpSample::kCopy];
  EpTestReport report{.test = tests_[test],
                      .num_rounds = rounds.back().num_rounds,
                      .round = figure_of(values(rounds, &EpBlock::round)),
                      .mean = figure_of(values(rounds, &EpBlock::mean)),
                      .prepare = median(rounds, &EpBlock::prepare),
                      .dispatch = median(rounds, &EpBlock::dispatch),
                      .combine = median(rounds, &EpBlock::combine),
                      .cpu = median(rounds, &EpBlock::cpu),
                      .wait_cpu = median(rounds, &EpBlock::wait_cpu),
                      .bytes = median(rounds, &EpBlock::bytes)};
  if (!copies.empty()) {
    report.copy = figure_of(values(copies, &EpBlock::mean));
    report.copy_cpu = median(copies, &EpBlock::cpu);
    report.share = quotient(copies, rounds, &EpBlock::mean);
  }
  report.of_first_form =
      quotient(rounds, blocks_[in_first_form(test)][EpSample::kRounds], &EpBlock::mean);
  for (size_t rows = 0; rows < report.mpi.size(); ++rows) {
    const Blocks& mpi_rounds = blocks_[test][EpSample::kMpi + rows];
    if (mpi_rounds.empty()) continue;
    report.mpi[rows] = {figure_of(values(mpi_rounds, &EpBlock::round)),
                        quotient(mpi_rounds, rounds, &EpBlock::round),
                        quotient(mpi_rounds, rounds, &EpBlock::mean)};
  }
  return report;
}

std::vector<EpTestReport> Samples::reports() const {
  std::vector<EpTestReport> reports;
  for (size_t test = 0; test < tests_.size(); ++test) reports.push_back(report(test));
  return reports;
}

std::optional<Figure> Samples::ping_pong_ns() const {
  std::vector<double> nanoseconds = values(blocks_[0][EpSample::kPingPong], &EpBlock::mean);
  if (nanoseconds.empty()) return std::nullopt;
  for (double& time : nanoseconds) time *= 1e3;
  return figure_of(nanoseconds);
}

size_t max_segment_bytes(const EpRankSetup& setup) {
  size_t bytes = 0;
  for (const EpTest& test : setup.options.tests()) {
    const ep::BufferLayout layout(dispatch_shape(round_setup(setup, test)));
    bytes = std::max(bytes, layout.segment_bytes());
  }
  return bytes;
}

}  // namespace

Result<EpBenchReport> run_ep_bench(const EpBenchOptions& options,
                                   const std::function<void()>& on_turn) {
  WIDEEP_TRY(check_options(options));
  std::string mpi_program;
  if (options.with_mpi) {
    WIDEEP_TRY_ASSIGN(mpi_program, find_mpi_baseline());
  }
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(const EpBoard board, EpBoard::create(options.group.num_ranks));
  const EpRankSetup setup{options, board, kernels,
                          limits::choose_processors(base::read_machine(), options.group.num_ranks),
                          mpi_program};
  Samples samples(options.tests());
  WIDEEP_TRY(transport::run_rank_processes(
      {.num_ranks = options.group.num_ranks,
       .segment_bytes = max_segment_bytes(setup),
       .timeout = options.timeout},
      [&setup](transport::Endpoint& endpoint, const transport::Messenger& pipe) {
        return run_ep_rank(setup, endpoint, pipe);
      },
      [&](int, std::string_view message) {
        samples.add(EpSample::of(message));
        if (!samples.turn_is_over()) return;
        samples.next_turn();
        on_turn();
      }));
  std::vector<EpTestReport> reports = samples.reports();
  for (EpTestReport& report : reports) {
    report.strategy = dispatch_shape(round_setup(setup, report.test)).strategy;
  }
  return EpBenchReport{.isa = std::string(kernels->isa),
                       .processors = setup.processors,
                       .ping_pong_ns = samples.ping_pong_ns(),
                       .tests = std::move(reports)};
}

}  // namespace wideep::measure
