// SPDX-License-Identifier: Apache-2.0
#include "simulate/check_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/try.h"
#include "measure/bench_ranks.h"
#include "simulate/step_cost.h"
#include "weights/random_tensors.h"

namespace wideep::simulate {
namespace {

constexpr int kContext = 24;      // tokens of a request before its first measured token
constexpr int kGenerated = 14;    // measured tokens of a request
constexpr int kRepetitions = 5;   // of every cell
constexpr int kMostTokens = 512;  // of a rank's iteration

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int64_t end_of(const run::Iteration& iteration) {
  int64_t end = 0;
  for (const engine::IterationRecord& rank : iteration.ranks) end = std::max(end, rank.end_ns);
  return end;
}

int64_t begin_of(const run::Iteration& iteration) {
  int64_t begin = 0;  // when the last rank began
  for (const engine::IterationRecord& rank : iteration.ranks) {
    begin = std::max(begin, rank.begin_ns);
  }
  return begin;
}

// Median seconds of the iterations in which every request gets one token.
double generating_seconds(const std::vector<run::Iteration>& iterations, int requests) {
  std::vector<double> seconds;
  for (size_t i = 1; i < iterations.size(); ++i) {
    int64_t generated = 0, prompt = 0;
    for (const engine::IterationRecord& rank : iterations[i].ranks) {
      generated += rank.generated_tokens;
      prompt += rank.prompt_tokens;
    }
    if (generated != requests || prompt != 0) continue;
    seconds.push_back(static_cast<double>(end_of(iterations[i]) - end_of(iterations[i - 1])) *
                      1e-9);
  }
  return seconds.empty() ? 0.0 : median_of(std::move(seconds));
}

double prompt_seconds(const std::vector<run::Iteration>& iterations) {
  return static_cast<double>(end_of(iterations[0]) - begin_of(iterations[0])) * 1e-9;
}

void add_counts(const std::vector<run::Iteration>& iterations, balance::ModelLoad* load) {
  for (const run::Iteration& iteration : iterations) {
    for (const engine::IterationRecord& rank : iteration.ranks) {
      for (size_t layer = 0; layer < load->load.size(); ++layer) {
        const std::vector<int32_t>& counts = rank.layers[layer].counts;
        for (size_t e = 0; e < counts.size(); ++e) load->load[layer][e] += counts[e];
      }
    }
  }
}

// The model's own load, in the placement that runs, with the shares that are best for it.
std::vector<PlacedLayer> placed_layers(const balance::ModelPlacement& placement,
                                       const balance::ModelLoad& load, int top_k) {
  std::vector<PlacedLayer> placed;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    placed.push_back(placed_as(placement.layers.at(load.layers[i]), load.load[i], top_k));
  }
  return placed;
}

struct Cell {
  bool is_prompt = false;
  int size = 0;  // requests of a rank, or tokens of its prompt
  std::vector<double> seconds;
};

}  // namespace

Result<std::vector<CheckedCell>> check_layout(const Hardware& hardware, const CheckedLayout& layout,
                                              run::RunView& view) {
  measure::BenchRanksOptions options{
      .config = layout.config,
      .precision = layout.format,
      .parallel = layout.parallel,
      .limits = {.max_batch_size = 64, .max_num_tokens = kMostTokens, .max_pages = 128}};
  WIDEEP_TRY_ASSIGN(
      const auto ranks,
      measure::BenchRanks::start(options, std::make_unique<weights::RandomTensors>(1), view));
  const run::RunPlan& plan = ranks->prepared().plan();
  const int batches = plan.num_request_owners();
  std::vector<Cell> cells;
  for (const int batch : layout.batches) cells.push_back({.size = batch});
  for (const int prompt : layout.prompts) cells.push_back({.is_prompt = true, .size = prompt});

  balance::ModelLoad load =
      uniform_load(layout.config.routing.num_experts, run::moe_layers(layout.config));
  for (auto& layer : load.load) std::ranges::fill(layer, 0.0);
  uint32_t seed = 0;
  for (int repetition = -1; repetition < kRepetitions; ++repetition) {  // the first warms up
    for (Cell& cell : cells) {
      const int count = cell.is_prompt ? batches : cell.size * batches;
      WIDEEP_TRY_ASSIGN(const auto iterations,
                        ranks->run(measure::random_requests(
                            count, cell.is_prompt ? cell.size : kContext,
                            cell.is_prompt ? 1 : kGenerated, layout.config.vocab_size, ++seed)));
      add_counts(iterations, &load);
      if (repetition < 0) continue;
      cell.seconds.push_back(cell.is_prompt ? prompt_seconds(iterations)
                                            : generating_seconds(iterations, count));
    }
  }
  const parallel::ParallelSizes& sizes = plan.mapping.sizes();
  const Layout described{.ep = sizes.moe_ep,
                         .expert_slices = sizes.moe_tp,
                         .stages = sizes.pp,
                         .attention_dp = !plan.joint,
                         .num_slots = plan.model.placement.num_slots,
                         .format = layout.format,
                         .cache = plan.cache};
  const StepCost cost(hardware, layout.config, described,
                      placed_layers(plan.model.placement, load, layout.config.routing.top_k));
  WIDEEP_TRY(ranks->finish());

  std::vector<CheckedCell> checked;
  for (const Cell& cell : cells) {
    const measure::StepShape shape =
        cell.is_prompt ? measure::prompt_step(1, cell.size, 0)
                       : measure::decode_step(cell.size, kContext + kGenerated / 2, 0);
    CheckedCell& each = checked.emplace_back(CheckedCell{
        .name =
            fmt::format("{}, {} {}", layout.name, cell.is_prompt ? "prompt" : "batch", cell.size),
        .predicted = cost.step(shape).seconds(),
        .measured = median_of(cell.seconds)});
    std::vector<double> distances;
    for (const double seconds : cell.seconds) {
      distances.push_back(std::abs(seconds / each.measured - 1.0));
    }
    each.noise = median_of(std::move(distances));
  }
  return checked;
}

double kendall_tau(const std::vector<double>& a, const std::vector<double>& b) {
  double same = 0.0, pairs = 0.0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double product = (a[i] - a[j]) * (b[i] - b[j]);
      same += product > 0.0 ? 1.0 : product < 0.0 ? -1.0 : 0.0;
      pairs += 1.0;
    }
  }
  return pairs > 0.0 ? same / pairs : 1.0;
}

CheckedSummary summarize(const std::vector<CheckedCell>& cells) {
  std::vector<double> errors, noise, predicted, measured;
  for (const CheckedCell& cell : cells) {
    errors.push_back(std::abs(cell.error()));
    noise.push_back(cell.noise);
    predicted.push_back(cell.predicted);
    measured.push_back(cell.measured);
  }
  return {.median = median_of(errors),
          .worst = *std::ranges::max_element(errors),
          .noise = median_of(noise),
          .kendall = kendall_tau(predicted, measured)};
}

}  // namespace wideep::simulate
