// SPDX-License-Identifier: Apache-2.0
//
// Policies that need the order of tokens show a dash where it is not known, and a last line says
// what would tell. The uniform router is no policy but the null: what every policy hits where all
// experts are chosen alike.
#include "cache_output.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "formats/json_text.h"
#include "text_table.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;
using residency::BudgetHits;
using residency::HitCounts;
using residency::LayerHits;

struct Policy {
  const char* name;
  const HitCounts* (*hits)(const BudgetHits&);  // null: not known
  bool has_set = true;  // that is worth showing: what LRU has is that of the last tokens
};

constexpr Policy kPolicies[] = {
    {"wideep", [](const BudgetHits& at) { return at.wideep ? &*at.wideep : nullptr; }},
    {"oracle", [](const BudgetHits& at) { return &at.oracle; }},
    {"fixed", [](const BudgetHits& at) { return &at.fixed; }},
    {"lru", [](const BudgetHits& at) { return at.lru ? &*at.lru : nullptr; }, false}};

double share_in_memory(const JudgedCache& judged, const JudgedBudget& budget) {
  return static_cast<double>(budget.hits.num_records) / judged.num_records();
}

double gigabytes(const JudgedCache& judged, const JudgedBudget& budget) {
  return budget.hits.num_records * *judged.bytes_per_expert / 1e9;
}

double rate_of(const LayerHits& layer) {
  return layer.reads > 0 ? static_cast<double>(layer.hits) / static_cast<double>(layer.reads) : 0.0;
}

std::string rate_text(double rate) { return fmt::format("{:.4f}", rate); }

// The columns that tell one budget from another.
std::vector<TextColumn> budget_columns(const JudgedCache& judged) {
  std::vector<TextColumn> columns = {{.title = "batch"}, {.title = "in memory"}};
  if (judged.bytes_per_expert) columns.push_back({.title = "GB"});
  columns.push_back({.title = judged.by_layer ? "layer" : "records"});
  return columns;
}

void add_budget(const JudgedCache& judged, const JudgedBudget& budget, const std::string& last,
                std::vector<TextColumn>* columns) {
  auto column = columns->begin();
  (column++)->cells.push_back(budget.batch > 0 ? fmt::format("{}", budget.batch) : "-");
  (column++)->cells.push_back(fmt::format("{:.3f}", share_in_memory(judged, budget)));
  if (judged.bytes_per_expert) {
    (column++)->cells.push_back(fmt::format("{:.1f}", gigabytes(judged, budget)));
  }
  column->cells.push_back(last);
}

std::string table_of_budgets(const JudgedCache& judged) {
  std::vector<TextColumn> columns = budget_columns(judged);
  const size_t first = columns.size();
  for (const Policy& policy : kPolicies) columns.push_back({.title = policy.name});
  columns.push_back({.title = "uniform"});
  for (const JudgedBudget& budget : judged.budgets) {
    add_budget(judged, budget, fmt::format("{}", budget.hits.num_records), &columns);
    size_t at = first;
    for (const Policy& policy : kPolicies) {
      const HitCounts* hits = policy.hits(budget.hits);
      columns[at++].cells.push_back(hits ? rate_text(hits->rate()) : "-");
    }
    columns[at].cells.push_back(rate_text(share_in_memory(judged, budget)));
  }
  return text_table(columns);
}

std::string table_of_layers(const JudgedCache& judged) {
  std::vector<TextColumn> columns = budget_columns(judged);
  const size_t first = columns.size();
  for (const Policy& policy : kPolicies) {
    if (policy.has_set) columns.push_back({.title = "records"});
    columns.push_back({.title = policy.name});
  }
  for (const JudgedBudget& budget : judged.budgets) {
    for (size_t layer = 0; layer < judged.layers.size(); ++layer) {
      add_budget(judged, budget, fmt::format("{}", judged.layers[layer]), &columns);
      size_t at = first;
      for (const Policy& policy : kPolicies) {
        const HitCounts* hits = policy.hits(budget.hits);
        const std::string records = hits ? fmt::format("{}", hits->layers[layer].num_records) : "-";
        if (policy.has_set) columns[at++].cells.push_back(records);
        columns[at++].cells.push_back(hits ? rate_text(rate_of(hits->layers[layer])) : "-");
      }
    }
  }
  return text_table(columns);
}

ordered_json layers_json(const JudgedCache& judged, const JudgedBudget& budget) {
  ordered_json layers = ordered_json::array();
  for (size_t layer = 0; layer < judged.layers.size(); ++layer) {
    ordered_json line = {{"layer", judged.layers[layer]},
                         {"reads", budget.hits.oracle.layers[layer].reads}};
    for (const Policy& policy : kPolicies) {
      const HitCounts* hits = policy.hits(budget.hits);
      if (!hits) continue;
      line[policy.name]["hit_rate"] = rate_of(hits->layers[layer]);
      if (policy.has_set) line[policy.name]["num_records"] = hits->layers[layer].num_records;
    }
    layers.push_back(std::move(line));
  }
  return layers;
}

ordered_json budget_json(const JudgedCache& judged, const JudgedBudget& budget) {
  ordered_json line;
  if (budget.batch > 0) line["batch"] = budget.batch;
  line["experts_in_memory"] = share_in_memory(judged, budget);
  line["num_records"] = budget.hits.num_records;
  if (judged.bytes_per_expert) line["gb"] = gigabytes(judged, budget);
  ordered_json& rates = line["hit_rate"];
  for (const Policy& policy : kPolicies) {
    if (const HitCounts* hits = policy.hits(budget.hits)) rates[policy.name] = hits->rate();
  }
  rates["uniform"] = share_in_memory(judged, budget);
  if (judged.by_layer) line["layers"] = layers_json(judged, budget);
  return line;
}

}  // namespace

std::string cache_table(const JudgedCache& judged) {
  const bool only_counts = !judged.budgets.empty() && judged.budgets[0].batch == 0;
  return fmt::format(
      "{} layers of {} experts, {} records; {}.\nHit rate: share of reads from memory; a read is "
      "{}."
      "\n{}{}",
      judged.layers.size(), judged.num_experts, judged.num_records(), judged.text,
      only_counts ? "a choice of a token" : "an expert of a layer that an iteration's tokens chose",
      judged.by_layer ? table_of_layers(judged) : table_of_budgets(judged),
      only_counts
          ? "Policies lru and wideep need the order of tokens, which counts do not have: give a "
            "trace\n"
          : "");
}

std::string cache_json(const JudgedCache& judged) {
  ordered_json root = {{"recording", judged.recording},
                       {"num_layers", judged.layers.size()},
                       {"num_experts", judged.num_experts},
                       {"num_records", judged.num_records()}};
  if (judged.bytes_per_expert) root["bytes_per_expert"] = *judged.bytes_per_expert;
  root["budgets"] = ordered_json::array();
  for (const JudgedBudget& budget : judged.budgets) {
    root["budgets"].push_back(budget_json(judged, budget));
  }
  return formats::json_text(root, 2) + "\n";
}

}  // namespace wideep::tools
