// SPDX-License-Identifier: Apache-2.0
//
// wideep balance report: how evenly recorded load falls on ranks or slots.
//
// Where the load is counted for experts, a placement says where they are: --project gives one, else
// experts lie in order. So the same statistics can be reported for placements that never ran.
// Counts of slots say what a run with a load balancer did: they have their places.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/try.h"
#include "commands.h"
#include "formats/json_text.h"
#include "recordings/balancer_yaml.h"
#include "recordings/report.h"
#include "statistics_options.h"

namespace wideep::tools {
namespace {

using balance::LoadSummary;
using balance::ModelPlacement;
using nlohmann::ordered_json;
using recordings::ExpertStatistics;
using recordings::LoadBy;
using recordings::LoadReport;

struct ReportOptions {
  StatisticsOptions statistics;
  std::string project;  // moe_load_balancer.yaml; empty: the linear placement
  bool per_expert = false;
  bool json = false;
};

// A report per slot needs no ranks, so --ep-size may be left out even if one rank recorded.
Result<int> ranks_of_report(const ReportOptions& options, const ExpertStatistics& statistics) {
  const bool any_will_do = options.per_expert && !options.statistics.ep_size;
  return any_will_do ? Result<int>(1) : choose_ep_size(options.statistics, statistics);
}

Result<ModelPlacement> placement_of_report(const ReportOptions& options,
                                           const ExpertStatistics& statistics, int ep_size) {
  if (options.project.empty()) return recordings::linear_model_placement(statistics, ep_size);
  return recordings::read_balancer_yaml(options.project, {.moe_layers = statistics.layers,
                                                          .num_experts = statistics.num_experts,
                                                          .ep_size = ep_size,
                                                          .unused_slots = true});
}

ordered_json to_json(const LoadSummary& summary) {
  return {
      {"mean", summary.mean}, {"std", summary.std}, {"imbalance_ratio", summary.imbalance_ratio}};
}

// Of a report of experts that a placement puts on ranks, or of slots.
struct Shape {
  int ep_size = 0, num_experts = 0, num_slots = 0;
};

std::string json_text(const LoadReport& report, const ReportOptions& options,
                      const ExpertStatistics& statistics, const Shape& shape) {
  ordered_json root = {{"by", options.per_expert ? "slot" : "rank"},
                       {"counts", statistics.slots ? "slot" : "expert"},
                       {"ep_size", shape.ep_size},
                       {"num_experts", shape.num_experts},
                       {"num_slots", shape.num_slots},
                       {"iter_start", statistics.iter_start},
                       {"iter_stop", statistics.iter_stop},
                       {"layers", ordered_json::array()}};
  const bool has_ranks =
      !options.per_expert || options.statistics.ep_size.has_value() || statistics.slots.has_value();
  if (!has_ranks) root.erase("ep_size");
  for (const LoadReport::Row& row : report.rows) {
    ordered_json line = {{"layer", row.layer}};
    line.update(to_json(row.summary));
    root["layers"].push_back(line);
  }
  root["average"] = to_json(report.average);
  return formats::json_text(root, 2) + "\n";
}

// Slots lie where the run had them.
Status check_slot_options(const ReportOptions& options, const recordings::SlotLayout& slots) {
  if (!options.project.empty()) {
    return invalid_input(fmt::format(
        "{}: --project: counts of slots are of the placement that ran; project the experts' "
        "counts, in the folder above",
        options.statistics.path));
  }
  const int ep_size = options.statistics.ep_size.value_or(slots.num_ranks);
  if (ep_size == slots.num_ranks) return {};
  return invalid_input(fmt::format(
      "{}: --ep-size: the slots lie on {} ranks (slot_ranks of meta_info.json), found {}; leave it "
      "out",
      options.statistics.path, slots.num_ranks, ep_size));
}

Result<LoadReport> report_of(const ReportOptions& options, const ExpertStatistics& statistics,
                             Shape* shape) {
  const LoadBy by = options.per_expert ? LoadBy::kSlot : LoadBy::kRank;
  if (statistics.slots) {
    WIDEEP_TRY(check_slot_options(options, *statistics.slots));
    *shape = {.ep_size = statistics.slots->num_ranks,
              .num_experts = statistics.slots->num_logical_experts,
              .num_slots = statistics.num_experts};
    return recordings::report_slots(statistics, by);
  }
  WIDEEP_TRY_ASSIGN(const int ep_size, ranks_of_report(options, statistics));
  WIDEEP_TRY_ASSIGN(const ModelPlacement placement,
                    placement_of_report(options, statistics, ep_size));
  *shape = {.ep_size = placement.layers.begin()->second.ep_size,
            .num_experts = statistics.num_experts,
            .num_slots = placement.num_slots};
  return recordings::report_load(statistics, placement, by);
}

Status run(const ReportOptions& options) {
  WIDEEP_TRY_ASSIGN(const ExpertStatistics statistics, read_any_statistics(options.statistics));
  Shape shape;
  WIDEEP_TRY_ASSIGN(const LoadReport report, report_of(options, statistics, &shape));
  const std::string text =
      options.json ? json_text(report, options, statistics, shape) : recordings::load_table(report);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

void add_balance_report_command(command_line::Command balance, Status* status) {
  auto options = std::make_shared<ReportOptions>();
  const command_line::Command command = balance.add_command(
      "report",
      "Report the load of ranks: mean, standard deviation and imbalance ratio (max / mean - 1)");
  add_statistics_options(command, &options->statistics);
  command
      .add_option("--project,--projection-eplb-config-path", options->project,
                  "A moe_load_balancer.yaml: report the load as its placement would spread it "
                  "(default: experts in order)")
      .path();
  command.add_flag(
      "--per-expert", options->per_expert,
      "Report per expert, or with --project or of counts of slots per slot, instead of per rank");
  command.add_flag("--json", options->json, "Print JSON");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
