// SPDX-License-Identifier: Apache-2.0
#include "bench/ep_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/try.h"
#include "bench/ep_rank.h"
#include "limits/limits.h"

namespace wideep::bench {
namespace {

// What rank 0 has told, test by test and kind by kind, in the order of the turns.
class Samples {
 public:
  explicit Samples(size_t num_tests) : tests_(num_tests) {}

  void add(const EpSample& sample) {
    Test& test = tests_[static_cast<size_t>(sample.test)];
    if (sample.kind == EpSample::kRounds) {
      test.blocks.push_back(sample.block);
    } else {
      test.values[static_cast<size_t>(sample.kind)].push_back(sample.value);
    }
  }
  EpTestReport report(size_t test, int tokens) const;
  std::optional<Figure> ping_pong_ns() const;

 private:
  struct Test {
    std::vector<EpBlock> blocks;
    std::array<std::vector<double>, EpSample::kMpi + std::size(kMpiRows)> values;

    template <typename Get>
    std::vector<double> of_blocks(Get get) const {
      std::vector<double> found;
      for (const EpBlock& block : blocks) found.push_back(get(block));
      return found;
    }
  };
  std::vector<Test> tests_;
};

std::vector<double> quotients(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> result(a.size());
  for (size_t i = 0; i < a.size(); ++i) result[i] = a[i] / b[i];
  return result;
}

EpTestReport Samples::report(size_t index, int tokens) const {
  const Test& test = tests_[index];
  const auto median = [&](double EpBlock::* member) {
    return figure_of(test.of_blocks([=](const EpBlock& b) { return b.*member; })).median;
  };
  const std::vector<double> rounds = test.of_blocks([](const EpBlock& b) { return b.round; });
  EpTestReport report{.tokens = tokens,
                      .num_rounds = test.blocks.back().num_rounds,
                      .round = figure_of(rounds),
                      .mean = figure_of(test.of_blocks([](const EpBlock& b) { return b.mean; })),
                      .prepare = median(&EpBlock::prepare),
                      .dispatch = median(&EpBlock::dispatch),
                      .combine = median(&EpBlock::combine),
                      .cpu = median(&EpBlock::cpu),
                      .wait_cpu = median(&EpBlock::wait_cpu),
                      .bytes = median(&EpBlock::bytes)};
  const std::vector<double>& copies = test.values[EpSample::kCopy];
  if (!copies.empty()) {
    report.copy = figure_of(copies);
    report.share = figure_of(quotients(copies, rounds));
  }
  for (size_t rows = 0; rows < report.mpi.size(); ++rows) {
    const std::vector<double>& theirs = test.values[EpSample::kMpi + rows];
    if (theirs.empty()) continue;
    report.mpi[rows] = {figure_of(theirs), figure_of(quotients(theirs, rounds))};
  }
  return report;
}

std::optional<Figure> Samples::ping_pong_ns() const {
  std::vector<double> nanoseconds;
  for (const double us : tests_[0].values[EpSample::kPingPong]) nanoseconds.push_back(us * 1e3);
  if (nanoseconds.empty()) return std::nullopt;
  return figure_of(nanoseconds);
}

// Rows, messages and results of all ranks, as far as they are touched.
Status check_memory(const EpBenchOptions& options, const base::Machine& machine) {
  const uint64_t tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const uint64_t row = static_cast<uint64_t>(options.hidden) * sizeof(Bf16);
  // A row in, its sum (float32), top_k messages and results at most; MPI keeps as many again and
  // copies of them.
  const uint64_t rows = 3 + 2 * static_cast<uint64_t>(options.group.top_k);
  const uint64_t needed = static_cast<uint64_t>(options.group.num_ranks) * tokens * row * rows *
                          (options.with_mpi ? 3 : 1);
  const uint64_t found = machine.usable_memory_bytes();
  if (needed <= found) return {};
  return invalid_input(fmt::format(
      "--tokens: {} tokens on each of {} ranks need {}, expected at most {} of memory", tokens,
      options.group.num_ranks, base::byte_size(needed), base::byte_size(found)));
}

}  // namespace

Status check_options(const EpBenchOptions& options) {
  const EpGroup& group = options.group;
  if (group.num_experts % group.num_ranks != 0) {
    return invalid_input(
        fmt::format("--experts: expected a multiple of the {} ranks, found {}: every rank holds as "
                    "many",
                    group.num_ranks, group.num_experts));
  }
  if (group.top_k > group.num_experts) {
    return invalid_input(fmt::format("--top-k: expected at most the {} experts, found {}",
                                     group.num_experts, group.top_k));
  }
  const bool is_bf16 = options.rows == kernels::RowFormat::kBf16 && options.rows == options.results;
  if (options.with_mpi && !is_bf16) {
    return invalid_input(fmt::format(
        "--baseline mpi: carries bf16 both ways, so expected --dtype and --combine-dtype bf16, "
        "found {} and {}",
        kernels::row_format_name(options.rows), kernels::row_format_name(options.results)));
  }
  WIDEEP_TRY(kernels::check_row_format(options.rows, options.hidden).at("--dtype"));
  WIDEEP_TRY(kernels::check_row_format(options.results, options.hidden).at("--combine-dtype"));
  return check_memory(options, base::read_machine());
}

int num_blocks(const EpBenchOptions& options) {
  const int kinds = 2 + (options.with_mpi ? static_cast<int>(std::size(kMpiRows)) : 0);
  return kinds * options.repeats * static_cast<int>(1 + options.tokens.size());
}

Result<EpBenchReport> run_ep_bench(const EpBenchOptions& options,
                                   const std::function<void()>& on_block) {
  WIDEEP_TRY(check_options(options));
  std::string mpi_program;
  if (options.with_mpi) {
    WIDEEP_TRY_ASSIGN(mpi_program, find_mpi_baseline());
  }
  WIDEEP_TRY_ASSIGN(const kernels::Kernels* kernels,
                    kernels::select_kernels(std::getenv("WIDEEP_ISA")));
  WIDEEP_TRY_ASSIGN(const EpBoard board, EpBoard::create(options.group.num_ranks));
  const EpRoundSetup round{
      .group = options.group,
      .hidden = options.hidden,
      .rows = options.rows,
      .results = options.results,
      .max_tokens = *std::max_element(options.tokens.begin(), options.tokens.end()),
      .kernels = kernels};
  const EpRankSetup setup{options, round, board,
                          limits::choose_processors(base::read_machine(), options.group.num_ranks),
                          mpi_program};
  Samples samples(1 + options.tokens.size());
  WIDEEP_TRY(transport::run_rank_processes(
      {.num_ranks = options.group.num_ranks,
       .segment_bytes = ep::BufferLayout(dispatch_shape(round)).segment_bytes(),
       .timeout = options.timeout},
      [&setup](transport::Endpoint& endpoint, const transport::MessagePipe& pipe) {
        return run_ep_rank(setup, endpoint, pipe);
      },
      [&](int, std::string_view message) {
        samples.add(EpSample::of(message));
        on_block();
      }));
  EpBenchReport report{.isa = std::string(kernels->isa),
                       .processors = setup.processors,
                       .ping_pong_ns = samples.ping_pong_ns()};
  report.tests.push_back(samples.report(0, 0));
  for (size_t i = 0; i < options.tokens.size(); ++i) {
    report.tests.push_back(samples.report(i + 1, options.tokens[i]));
  }
  return report;
}

}  // namespace wideep::bench
