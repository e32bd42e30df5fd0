// SPDX-License-Identifier: Apache-2.0
//
// The page gets its numbers as one JSON object in a mark of its text, and draws them itself;
// nothing is drawn here. Of all layouts only points are sent, one for each place that a picture can
// tell apart; those of the Pareto front and the neighbours of the best have all they say.
#include "advise_html.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "advise/neighbours.h"
#include "advise/rank_memory.h"
#include "advise/what_if.h"
#include "advise_page.h"
#include "base/try.h"
#include "formats/page.h"

namespace wideep::tools {
namespace {

using advise::Candidate;
using nlohmann::ordered_json;

// Four digits that count: pages with thousands of points stay small.
double rounded(double value) {
  if (value == 0.0) return 0.0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3.0);
  return std::round(value / unit) * unit;
}

ordered_json step_json(const cost::StepTime& step) {
  return {{"attention", step.attention * 1e3}, {"dense", step.dense * 1e3},
          {"experts", step.experts * 1e3},     {"dispatch", step.dispatch * 1e3},
          {"combine", step.combine * 1e3},     {"joint", step.joint * 1e3},
          {"fixed", step.fixed * 1e3}};
}

ordered_json memory_json(const AdvisePage& page, const Candidate& each) {
  const advise::RankMemory memory = advise::memory_of(page.config, each.layout);
  return {{"experts", memory.experts},
          {"replicas", memory.replicas},
          {"dense", memory.dense},
          {"vocabulary", memory.vocabulary},
          {"cache", each.memory - memory.weights}};
}

ordered_json candidate_json(const AdvisePage& page, const Candidate& each) {
  return {{"layout", text_of(each.layout)},
          {"ep", each.layout.ep},
          {"ranks", each.layout.num_ranks()},
          {"requests", each.requests()},
          {"tokens_of_step", each.tokens_of_step},
          {"per_user", each.tokens_per_user},
          {"per_rank", each.tokens_per_rank},
          {"tpot", each.tpot * 1e3},
          {"ttft", each.ttft * 1e3},
          {"imbalance", page.loads.is_known ? ordered_json(each.imbalance) : ordered_json(nullptr)},
          {"error", each.error},
          {"step", step_json(each.step)},
          {"memory", memory_json(page, each)}};
}

// One candidate for each EP size at nearly the same place: [per_user, per_rank, ep].
ordered_json cloud_json(const std::vector<Candidate>& all) {
  constexpr double kSteps = 60.0;  // of a factor of e: no picture shows more
  std::set<std::tuple<int, int, int>> seen;
  ordered_json cloud = ordered_json::array();
  for (const Candidate& each : all) {
    const auto place = [](double value) {
      return static_cast<int>(std::lround(std::log(value) * kSteps));
    };
    if (!seen.emplace(each.layout.ep, place(each.tokens_per_user), place(each.tokens_per_rank))
             .second) {
      continue;
    }
    cloud.push_back({rounded(each.tokens_per_user), rounded(each.tokens_per_rank), each.layout.ep});
  }
  return cloud;
}

ordered_json neighbours_json(const AdvisePage& page) {
  ordered_json neighbours = ordered_json::array();
  if (!page.advice.best) return neighbours;
  for (const auto& each :
       advise::neighbours_of(page.advice, page.workload,
                             page.config.has_experts() ? page.config.routing.num_experts : 0)) {
    ordered_json json = candidate_json(page, each.candidate);
    json["change"] = each.change;
    json["meets"] = each.meets;
    neighbours.push_back(std::move(json));
  }
  return neighbours;
}

// Empty where nothing is known of the load: a picture of zeros would say that it is even.
Result<ordered_json> imbalance_json(const AdvisePage& page) {
  ordered_json rows = ordered_json::array();
  if (page.config.num_moe_layers() == 0 || !page.loads.is_known) return rows;
  std::vector<int> ranks;
  const int max = std::min(page.config.routing.num_experts, std::max(64, page.choices.max_ranks));
  for (int ep = 2; ep <= max; ep *= 2) ranks.push_back(ep);
  WIDEEP_TRY_ASSIGN(const auto found,
                    advise::imbalance_by_ranks(page.loads.planned, page.loads.judged, ranks, 1));
  for (const auto& at : found) {
    rows.push_back({{"ep", at.ep},
                    {"in_order", at.in_order},
                    {"placed", at.placed},
                    {"eplb", at.eplb},
                    {"replicated", at.replicated}});
  }
  return rows;
}

ordered_json limits_json(const advise::Workload& workload) {
  const auto milliseconds = [](std::optional<double> seconds) -> ordered_json {
    if (!seconds) return nullptr;
    return *seconds * 1e3;
  };
  return {{"tpot", milliseconds(workload.max_tpot)}, {"ttft", milliseconds(workload.max_ttft)}};
}

}  // namespace

Result<std::string> advise_html(const AdvisePage& page) {
  WIDEEP_TRY_ASSIGN(ordered_json imbalance, imbalance_json(page));
  const advise::Advice& advice = page.advice;
  ordered_json json = {{"model", page.model},
                       {"hardware", page.hardware.name},
                       {"device", page.hardware.device},
                       {"memory_bytes", page.hardware.memory_bytes},
                       {"memory_share", page.choices.memory_share},
                       {"isl", page.workload.isl},
                       {"osl", page.workload.osl},
                       {"limits", limits_json(page.workload)},
                       {"layouts", advice.num_layouts},
                       {"too_large", advice.num_too_large},
                       {"statistics", page.loads.text},
                       {"nearest", advice.nearest},
                       {"reasons", advice.reasons},
                       {"cloud", cloud_json(advice.all)},
                       {"pareto", ordered_json::array()},
                       {"best", nullptr},
                       {"neighbours", neighbours_json(page)},
                       {"num_experts", page.config.routing.num_experts},
                       {"imbalance", std::move(imbalance)}};
  for (const Candidate& each : advice.pareto) json["pareto"].push_back(candidate_json(page, each));
  if (advice.best) json["best"] = candidate_json(page, *advice.best);
  return formats::fill_marks(advise_page(), {{"DATA", formats::script_json(json)},
                                             {"SUMMARY", formats::escape_html(page.summary)}});
}

}  // namespace wideep::tools
