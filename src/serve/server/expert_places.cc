// SPDX-License-Identifier: Apache-2.0
#include "server/expert_places.h"

#include <fmt/format.h>

#include <functional>

#include "server/prometheus_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;
using residency::ResidencyCounts;

ResidencyCounts sum_of(const run::ExpertPlaces& places) {
  ResidencyCounts sum;
  for (const ResidencyCounts& layer : places.counts) sum += layer;
  return sum;
}

ordered_json json_of(const ResidencyCounts& counts) {
  return {{"resident", counts.num_resident},
          {"chosen", counts.chosen},
          {"hits", counts.hits},
          {"read_ahead", counts.expected},
          {"read_in_vain", counts.read_in_vain},
          {"lost", counts.lost},
          {"waited_seconds", static_cast<double>(counts.waited_ns) * 1e-9}};
}

}  // namespace

std::string ExpertPlaces::metrics() const {
  if (ranks_.empty()) return "";
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help,
                       const std::function<std::string(const run::ExpertPlaces&)>& value) {
    text += metric_head(name, type, help);
    for (const auto& [rank, places] : ranks_) {
      text += fmt::format("{}{{ep_rank=\"{}\"}} {}\n", name, rank, value(places));
    }
  };
  const auto count = [&](const char* name, const char* help, int64_t ResidencyCounts::* member) {
    add(name, "counter", help, [member](const run::ExpertPlaces& places) {
      return fmt::format("{}", sum_of(places).*member);
    });
  };
  add("wideep_experts_resident", "gauge", "Experts of all layers that stay in memory.",
      [](const auto& places) { return fmt::format("{}", sum_of(places).num_resident); });
  count("wideep_experts_chosen_total",
        "Experts that had tokens, once for each layer and iteration.", &ResidencyCounts::chosen);
  count("wideep_experts_chosen_resident_total", "Of those, were in memory because they stay there.",
        &ResidencyCounts::hits);
  count("wideep_experts_read_ahead_total", "Of those, were expected, and read or being read.",
        &ResidencyCounts::expected);
  count("wideep_experts_read_in_vain_total", "Experts that were expected and had no tokens.",
        &ResidencyCounts::read_in_vain);
  count("wideep_experts_lost_total", "Experts that could not be read when tokens needed them.",
        &ResidencyCounts::lost);
  add("wideep_expert_wait_seconds_total", "counter",
      "Time of the rank with nothing to do but to wait for experts.", [](const auto& places) {
        return fmt::format("{}", static_cast<double>(sum_of(places).waited_ns) * 1e-9);
      });
  add("wideep_expert_read_bytes_total", "counter", "Bytes of experts read from the packed weights.",
      [](const auto& places) { return fmt::format("{}", places.read_bytes); });
  add("wideep_expert_read_seconds_total", "counter", "Time with at least one read in flight.",
      [](const auto& places) { return fmt::format("{}", places.read_seconds); });
  return text;
}

ordered_json ExpertPlaces::json() const {
  if (ranks_.empty()) return nullptr;
  ordered_json ranks = ordered_json::array(), layers = ordered_json::array();
  std::map<int, ResidencyCounts> by_layer;
  for (const auto& [rank, places] : ranks_) {
    ordered_json each = json_of(sum_of(places));
    each["rank"] = rank;
    each["owned"] = places.num_owned;
    each["records"] = places.num_records;
    each["read_bytes"] = places.read_bytes;
    each["read_seconds"] = places.read_seconds;
    ranks.push_back(std::move(each));
    for (size_t i = 0; i < places.layers.size(); ++i)
      by_layer[places.layers[i]] += places.counts[i];
  }
  for (const auto& [layer, counts] : by_layer) {
    ordered_json each = json_of(counts);
    each["layer"] = layer;
    layers.push_back(std::move(each));
  }
  return {{"ranks", std::move(ranks)}, {"layers", std::move(layers)}};
}

}  // namespace wideep::server
