// SPDX-License-Identifier: Apache-2.0
//
// What can fail is done first, on one thread; then the layouts are weighed in parallel, each into a
// place of its own: the order of candidates does not depend on threads. Drafts and context
// parallelism are justified by the best layout without them, whatever it is, for the same one might
// keep the limits with tiny batches only; slots by the same layout with other numbers of them.
#include "advise/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "advise/arrivals.h"
#include "advise/context_part.h"
#include "advise/sweep.h"
#include "advise/weighed_layouts.h"
#include "advise/workload_steps.h"
#include "base/pareto_front.h"
#include "base/try.h"
#include "model/kv_layout.h"

namespace wideep::advise {
namespace {

using model::ModelConfig;

Candidate predict(const cost::StepCost& cost, int batch, const Workload& workload,
                  const Choices& choices) {
  const cost::Layout& layout = cost.layout();
  Candidate candidate{.layout = layout,
                      .batch = batch,
                      .tokens_of_step = tokens_of_step(layout.drafts, workload.acceptance)};
  // Each of the micro-batches that fill a pipeline has a part of the requests.
  const int micro_batch = (batch + layout.stages - 1) / layout.stages;
  const model::StepShape all = generating(micro_batch, layout.drafts, workload);
  const ContextDeal deal = context_deal(layout.context, choices.max_num_tokens);
  const model::StepShape plain = busiest_generating(all, micro_batch, deal);
  candidate.step = cost.step(plain);
  const int64_t room = std::max<int64_t>(1, choices.max_num_tokens - all.num_tokens);
  const double arriving = micro_batch * candidate.tokens_of_step * workload.isl / workload.osl;
  // Of all iterations, the part that has a chunk; a full chunk in every one is not enough for
  // more prompts than that.
  const int64_t chunk = std::min(room, std::max<int64_t>(workload.isl, std::llround(arriving)));
  const double part = std::max(1.0, arriving / static_cast<double>(chunk)) > 1.0
                          ? arriving / static_cast<double>(chunk)
                          : std::min(1.0, arriving / static_cast<double>(chunk));
  model::StepShape mixed = plain;
  mixed += chunk_of(chunk, workload, deal);
  const double with = cost.step(mixed).seconds();
  const double without = candidate.step.seconds();
  const double iteration = part <= 1.0 ? part * with + (1.0 - part) * without : part * with;
  candidate.tpot = iteration / candidate.tokens_of_step;
  candidate.longest = with;
  const double chunks = std::ceil(static_cast<double>(workload.isl) / static_cast<double>(chunk));
  candidate.ttft = iteration / 2.0 + chunks * with;
  candidate.tokens_per_user = 1.0 / candidate.tpot;
  candidate.tokens_per_rank =
      static_cast<double>(batch) * layout.num_batches() / (candidate.tpot * layout.num_ranks());
  return candidate;
}

// With every batch that is worth a look.
std::vector<Candidate> candidates_of(const Question& question, const WeighedLayout& weighed) {
  const cost::StepCost cost = weighed.cost(question);
  const double request = weighed.token * (question.workload.isl + question.workload.osl);
  std::vector<Candidate> candidates;
  for (const int batch : batches_up_to(weighed.max_requests)) {
    Candidate candidate = predict(cost, batch, question.workload, question.choices);
    candidate.memory = weighed.weights + batch * request;
    candidate.imbalance = weighed.imbalance;
    candidate.error = error_of(question.hardware, candidate.step);
    candidates.push_back(candidate);
  }
  return candidates;
}

std::string milliseconds(double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); }

std::string nearest_of(const std::vector<Candidate>& all, const Workload& workload) {
  const auto by = [&](auto member) { return *std::ranges::min_element(all, {}, member); };
  if (workload.max_tpot) {
    const Candidate min = by(&Candidate::tpot);
    if (min.tpot > *workload.max_tpot) {
      return fmt::format("no layout has {} between tokens; nearest: {} with {} ({} requests)",
                         milliseconds(*workload.max_tpot), milliseconds(min.tpot),
                         text_of(min.layout), min.requests());
    }
  }
  if (workload.max_ttft) {
    const Candidate min = by(&Candidate::ttft);
    if (min.ttft > *workload.max_ttft) {
      return fmt::format("no layout has {} to the first token; nearest: {} with {} ({} requests)",
                         milliseconds(*workload.max_ttft), milliseconds(min.ttft),
                         text_of(min.layout), min.requests());
    }
  }
  if (workload.rate) {
    const auto carried = [&](const Candidate& each) {
      return each.tokens_per_rank * each.layout.num_ranks() / workload.osl;
    };
    const Candidate max = *std::ranges::max_element(all, {}, carried);
    return fmt::format(
        "no layout serves {} requests per second within the limits; nearest: {:.2f} with {}",
        *workload.rate, carried(max), text_of(max.layout));
  }
  return "no layout meets all limits at once";
}

// Of those that meet the limits, in layouts of a kind; null: none does.
const Candidate* best_of(const std::vector<Candidate>& all, const Workload& workload,
                         bool (*is_of_kind)(const cost::Layout&)) {
  const Candidate* best = nullptr;
  for (const Candidate& each : all) {
    if (!is_of_kind(each.layout) || !meets(each, workload)) continue;
    if (best == nullptr || is_better(each, *best, workload)) best = &each;
  }
  return best;
}

// Against the best without context parallelism, whatever its layout.
void add_context_reason(const std::vector<Candidate>& all, const Workload& workload,
                        Advice* advice) {
  const Candidate& best = *advice->best;
  if (best.layout.context == 1) return;
  const Candidate* without =
      best_of(all, workload, [](const cost::Layout& layout) { return layout.context == 1; });
  const std::string gain =
      without == nullptr
          ? "without it nothing meets the limits"
          : fmt::format("{:+.1f} % tokens of a rank against the best without, on {} ranks: {}",
                        100.0 * (best.tokens_per_rank / without->tokens_per_rank - 1.0),
                        without->layout.num_ranks(), text_of(without->layout));
  advice->reasons.push_back(
      fmt::format("{} ranks share each sequence: {}", best.layout.context, gain));
}

// The same layout with other slots, with the batch that is best then.
void add_slot_reasons(const std::vector<Candidate>& all, const Workload& workload, Advice* advice) {
  const Candidate& best = *advice->best;
  std::map<int, Candidate> by_slots;
  for (const Candidate& each : all) {
    cost::Layout same = each.layout;
    same.num_slots = best.layout.num_slots;
    if (same != best.layout || !meets(each, workload)) continue;
    const auto [place, is_new] = by_slots.emplace(each.layout.num_slots, each);
    if (!is_new && is_better(each, place->second, workload)) place->second = each;
  }
  const Candidate* before = nullptr;
  for (const auto& [slots, each] : by_slots) {
    if (before != nullptr) {
      advice->reasons.push_back(fmt::format(
          "slots {}: imbalance {:.3f} -> {:.3f}, {:+.1f} % tokens of a rank against {} slots",
          slots, before->imbalance, each.imbalance,
          100.0 * (each.tokens_per_rank / before->tokens_per_rank - 1.0),
          before->layout.num_slots));
    }
    before = &each;
  }
}

// Against the best without drafts, whatever its layout: the same one may have to serve with very
// small batches to keep the limits.
void add_draft_reason(const std::vector<Candidate>& all, const Workload& workload, Advice* advice) {
  const Candidate& best = *advice->best;
  if (best.layout.drafts == 0) return;
  const Candidate* without =
      best_of(all, workload, [](const cost::Layout& layout) { return layout.drafts == 0; });
  const std::string gain =
      without == nullptr
          ? "without them nothing meets the limits"
          : fmt::format("{:+.1f} % tokens of a rank against the best without: {}",
                        100.0 * (best.tokens_per_rank / without->tokens_per_rank - 1.0),
                        text_of(without->layout));
  advice->reasons.push_back(fmt::format("{} drafts: {:.2f} tokens of a request in a step, {}",
                                        best.layout.drafts, best.tokens_of_step, gain));
}

void add_limit(Advice* advice) {
  const cost::StepTime& step = advice->best->step;
  const std::pair<const char*, double> parts[] = {
      {"experts", step.experts},     {"attention", step.attention}, {"dense products", step.dense},
      {"dispatch", step.dispatch},   {"combine", step.combine},     {"all-reduces", step.joint},
      {"the fixed part", step.fixed}};
  const auto largest =
      *std::ranges::max_element(parts, {}, [](const auto& part) { return part.second; });
  advice->reasons.push_back(fmt::format("limited by {}: {:.0f} % of an iteration of {}",
                                        largest.first, 100.0 * largest.second / step.seconds(),
                                        milliseconds(step.seconds())));
}

}  // namespace

bool meets(const Candidate& candidate, const Workload& workload) {
  if (workload.max_tpot && candidate.tpot > *workload.max_tpot) return false;
  if (workload.max_ttft && candidate.ttft > *workload.max_ttft) return false;
  if (!workload.rate) return true;
  const double requests = candidate.tokens_per_rank * candidate.layout.num_ranks() / workload.osl;
  return requests >= *workload.rate;
}

bool is_better(const Candidate& a, const Candidate& b, const Workload& workload) {
  if (workload.rate && a.layout.num_ranks() != b.layout.num_ranks()) {
    return a.layout.num_ranks() < b.layout.num_ranks();
  }
  return a.tokens_per_rank > b.tokens_per_rank;
}

Result<cost::StepCost> step_cost(const Question& question, const cost::Layout& layout) {
  WIDEEP_TRY_ASSIGN(std::vector<cost::PlacedLayer> placed, place_layers(question, layout));
  return cost::StepCost(question.hardware, question.config, layout, std::move(placed));
}

Result<SimulatedServing> simulate_candidate(const Candidate& candidate, const cost::StepCost& cost,
                                            const Workload& workload, const Choices& choices,
                                            int num_requests) {
  if (candidate.layout.drafts > 0) {
    return invalid_input(
        "--simulate: simulated steps have no drafts, but the recommendation has; leave out "
        "--acceptance");
  }
  std::vector<SimulatedRequest> requests(
      static_cast<size_t>(num_requests),
      SimulatedRequest{.isl = workload.isl, .osl = workload.osl});
  if (workload.rate) {
    const std::vector<double> times = arrival_times({.request_rate = *workload.rate}, num_requests);
    for (size_t i = 0; i < times.size(); ++i) requests[i].arrival = times[i];
  }
  const int pages = (workload.isl + workload.osl + kernels::kPageTokens - 1) / kernels::kPageTokens;
  const int tokens = std::max(choices.max_num_tokens, candidate.batch);
  const int stages = candidate.layout.stages;
  const ContextDeal deal = context_deal(candidate.layout.context, tokens);
  SimulationOptions options{.num_batches = candidate.layout.num_batches(),
                            .context_ranks = deal.num_ranks,
                            .limits = {.max_batch_size = (candidate.batch + stages - 1) / stages,
                                       .max_num_tokens = tokens,
                                       .max_rank_tokens = deal.rank_tokens,
                                       .turn_pages = deal.turn / kernels::kPageTokens,
                                       .max_pages = candidate.batch * (pages + 1),
                                       .micro_batches = stages}};
  if (!workload.rate) options.concurrency = static_cast<int>(candidate.requests());
  return simulate_serving(requests, options, [&](std::span<const model::StepShape> batches) {
    return cost.step(batches).seconds();
  });
}

double tokens_of_step(int drafts, double acceptance) {
  double tokens = 1.0, right = 1.0;
  for (int i = 0; i < drafts; ++i) {
    right *= acceptance;
    tokens += right;
  }
  return tokens;
}

Result<Advice> advise(const Question& question) {
  const Workload& workload = question.workload;
  WIDEEP_TRY_ASSIGN(WeighedLayouts weighed, weigh_layouts(question));
  Advice advice{.num_layouts = weighed.num_layouts,
                .num_too_large = weighed.num_too_large,
                .outside = std::move(weighed.outside)};
  std::vector<std::vector<Candidate>> candidates(weighed.layouts.size());
  for_each_in_parallel(candidates.size(), [&](size_t i) {
    candidates[i] = candidates_of(question, weighed.layouts[i]);
  });
  std::vector<Candidate>& all = advice.all;
  for (const auto& each : candidates) all.insert(all.end(), each.begin(), each.end());
  for (const Candidate& candidate : all) {
    if (!meets(candidate, workload)) continue;
    if (!advice.best || is_better(candidate, *advice.best, workload)) advice.best = candidate;
  }
  if (advice.best) {
    add_limit(&advice);
    add_slot_reasons(all, workload, &advice);
    add_context_reason(all, workload, &advice);
    add_draft_reason(all, workload, &advice);
  } else {
    advice.nearest = nearest_of(all, workload);
  }
  advice.pareto = pareto_front(all, &Candidate::tokens_per_user, &Candidate::tokens_per_rank);
  return advice;
}

}  // namespace wideep::advise
