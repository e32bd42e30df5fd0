// SPDX-License-Identifier: Apache-2.0
//
// A prediction is given the experts that were chosen while the layout was measured: judged is the
// model of costs, not a guess of the load. Of generated tokens an iteration counts if it has one of
// each request, and is predicted for the middle of the measured ones; of prompts the first counts.
// A round's time is the lower quartile of its iterations.
#include "measure/predict/check_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "advise/context_part.h"
#include "base/machine.h"
#include "base/try.h"
#include "measure/calibrate/iteration_parts.h"
#include "measure/calibrate/other_work.h"
#include "measure/model/bench_ranks.h"
#include "model/model_division.h"
#include "weights/checkpoint.h"
#include "weights/random_tensors.h"

namespace wideep::measure {
namespace {

constexpr int kContext = 24;     // tokens of a request before its first measured token
constexpr int kGenerated = 14;   // measured tokens of a request
constexpr int kMaxTokens = 512;  // of a rank's iteration
constexpr double kUndisturbed = 0.25;

// The iterations in which every request gets one token; or, of prompts, the first.
std::vector<double> read(std::vector<run::Iteration> iterations, bool is_prompt, int requests,
                         int cores, std::vector<IterationParts>* parts) {
  std::vector<double> seconds;
  const auto add = [&](const run::Iteration& iteration, double each) {
    seconds.push_back(each);
    parts->push_back(parts_of(iteration.ranks, each, cores));
  };
  if (is_prompt) add(iterations[0], seconds_alone(iterations[0]));
  for (size_t i = 1; i < iterations.size() && !is_prompt; ++i) {
    int64_t generated = 0, prompt = 0;
    for (const engine::IterationRecord& rank : iterations[i].ranks) {
      generated += rank.generated_tokens;
      prompt += rank.prompt_tokens;
    }
    // Ranks that compute a batch together have all of its tokens.
    const auto ranks = static_cast<int64_t>(iterations[i].ranks.size());
    const bool all = generated == requests || generated == requests * ranks;
    if (!all || prompt != 0) continue;
    add(iterations[i], seconds_between(iterations[i - 1], iterations[i]));
  }
  return seconds;
}

Result<std::unique_ptr<weights::TensorSource>> tensors_of(const CheckedLayout& layout) {
  std::unique_ptr<weights::TensorSource> tensors;
  if (layout.checkpoint.empty()) {
    tensors = std::make_unique<weights::RandomTensors>(1);
    return tensors;
  }
  WIDEEP_TRY_ASSIGN(auto checkpoint, weights::Checkpoint::open(layout.checkpoint));
  tensors = std::make_unique<weights::Checkpoint>(std::move(checkpoint));
  return tensors;
}

double part_of(const std::vector<IterationParts>& parts, double IterationParts::* part,
               double share) {
  std::vector<double> values;
  for (const IterationParts& each : parts) values.push_back(each.*part);
  return quantile(std::move(values), share);
}

// The model's own load, in the placement that runs, with the shares that are best for it.
std::vector<cost::PlacedLayer> placed_layers(const balance::ModelPlacement& placement,
                                             const balance::ModelLoad& load, int top_k) {
  std::vector<cost::PlacedLayer> placed;
  for (size_t i = 0; i < load.layers.size(); ++i) {
    placed.push_back(cost::placed_as(placement.layers.at(load.layers[i]), load.load[i], top_k));
  }
  return placed;
}

}  // namespace

void LayoutCheck::add_counts(const std::vector<run::Iteration>& iterations) {
  for (const run::Iteration& iteration : iterations) {
    for (const engine::IterationRecord& rank : iteration.ranks) {
      for (size_t layer = 0; layer < load_.load.size(); ++layer) {
        const std::vector<int32_t>& counts = rank.layers[layer].counts;
        for (size_t e = 0; e < counts.size(); ++e) load_.load[layer][e] += counts[e];
      }
    }
  }
}

bool CheckedCell::is_disturbed() const { return others > kMaxOthers; }

Status LayoutCheck::measure(int repetitions, run::RunView& view) {
  const OtherWork others;
  BenchRanksOptions options{
      .config = layout_.config,
      .precision = layout_.format,
      .parallel = layout_.parallel,
      .limits = {.max_batch_size = 64, .max_num_tokens = kMaxTokens, .max_pages = 320}};
  WIDEEP_TRY_ASSIGN(auto tensors, tensors_of(layout_));
  WIDEEP_TRY_ASSIGN(const auto ranks, BenchRanks::start(options, std::move(tensors), view));
  const run::RunPlan& plan = ranks->prepared().plan();
  const int batches = plan.num_request_owners();
  const int cores = base::read_machine().usable_cores();
  if (cells_.empty()) {
    for (const int batch : layout_.batches) cells_.push_back({.size = batch});
    for (const int prompt : layout_.prompts) cells_.push_back({.is_prompt = true, .size = prompt});
    load_ =
        cost::uniform_load(layout_.config.routing.num_experts, model::moe_layers(layout_.config));
    for (auto& layer : load_.load) std::ranges::fill(layer, 0.0);
    const parallel::ParallelSizes& sizes = plan.mapping.sizes();
    placement_ = plan.model.placement;
    described_ = {.ep = sizes.moe_ep,
                  .expert_slices = sizes.moe_tp,
                  .stages = sizes.pp,
                  .context = sizes.cp,
                  .attention_dp = !plan.joint,
                  .num_slots = placement_.num_slots,
                  .format = layout_.format,
                  .cache = plan.cache};
  }
  uint32_t seed = 0;
  std::vector<std::vector<double>> seconds(cells_.size());
  for (int repetition = -1; repetition < repetitions; ++repetition) {  // the first warms up
    for (size_t i = 0; i < cells_.size(); ++i) {
      Cell& cell = cells_[i];
      const int count = cell.is_prompt ? batches : cell.size * batches;
      WIDEEP_TRY_ASSIGN(auto iterations,
                        ranks->run(random_requests(count, cell.is_prompt ? cell.size : kContext,
                                                   cell.is_prompt ? 1 : kGenerated,
                                                   layout_.config.vocab_size, ++seed)));
      add_counts(iterations);
      if (repetition < 0) continue;
      for (const double each :
           read(std::move(iterations), cell.is_prompt, count, cores, &cell.parts)) {
        seconds[i].push_back(each);
      }
    }
  }
  WIDEEP_TRY(ranks->finish());
  others_.push_back(others.share());
  for (size_t i = 0; i < cells_.size(); ++i) {
    if (seconds[i].empty()) {
      return failed(fmt::format("{}: no iteration had a token of each of {} requests", layout_.name,
                                cells_[i].size));
    }
    cells_[i].rounds.push_back(quantile(std::move(seconds[i]), kUndisturbed));
  }
  return {};
}

// Of one group of requests; with context parallelism of the rank that has most of it. Sequences
// begin with different ranks.
model::StepShape LayoutCheck::shape_of(const Cell& cell) const {
  const advise::ContextDeal deal = advise::context_deal(described_.context, kMaxTokens);
  std::vector<advise::DealtTokens> sequences;
  if (cell.is_prompt) sequences.push_back({.tokens = cell.size});
  for (int i = 0; i < cell.size && !cell.is_prompt; ++i) {
    sequences.push_back(
        {.first_rank = i % deal.num_ranks, .computed = kContext + kGenerated / 2, .tokens = 1});
  }
  return advise::busiest_of(advise::dealt_shapes(sequences, deal));
}

cost::StepCost LayoutCheck::cost(const cost::Hardware& hardware) const {
  return {hardware, layout_.config, described_,
          placed_layers(placement_, load_, layout_.config.routing.top_k)};
}

std::vector<CheckedCell> LayoutCheck::judge(const cost::Hardware& hardware) const {
  const cost::StepCost cost = this->cost(hardware);
  std::vector<CheckedCell> checked;
  for (const Cell& cell : cells_) {
    const cost::StepTime step = cost.step(shape_of(cell));
    CheckedCell& each = checked.emplace_back(CheckedCell{
        .name =
            fmt::format("{}, {} {}", layout_.name, cell.is_prompt ? "prompt" : "batch", cell.size),
        .is_prompt = cell.is_prompt,
        .predicted = step.seconds(),
        .predicted_parts = {.experts = step.experts,
                            .dense = step.attention + step.dense,
                            .exchange = step.dispatch + step.combine + step.joint + step.fixed},
        .measured_parts = {
            .experts = part_of(cell.parts, &IterationParts::experts, 0.5),
            .dense = part_of(cell.parts, &IterationParts::dense, 0.5),
            .exchange = part_of(cell.parts, &IterationParts::exchange, kUndisturbed)}});
    each.measured = 0.5 * (quantile(cell.rounds, 0.49) + quantile(cell.rounds, 0.5));
    std::vector<double> distances;
    for (const double round : cell.rounds) {
      distances.push_back(std::abs(round / each.measured - 1.0));
    }
    each.noise = median(std::move(distances));
    each.others = median(others_);
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
  return {.median = median(errors),
          .worst = *std::ranges::max_element(errors),
          .noise = median(noise),
          .kendall = kendall_tau(predicted, measured)};
}

}  // namespace wideep::measure
