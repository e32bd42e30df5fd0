// SPDX-License-Identifier: Apache-2.0
//
// Each rank counts since its process began, so sums take what has been added since its last report.
#include "server/expert_places.h"

#include <fmt/format.h>

#include <functional>
#include <utility>

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

ExpertWork work_of(const run::ExpertPlaces& places) {
  const ResidencyCounts sum = sum_of(places);
  return {.counts = sum,
          .memory_bytes = static_cast<uint64_t>(sum.hits) * places.record_bytes,
          .disk_bytes = places.read_bytes};
}

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

ExpertWork& ExpertWork::operator+=(const ExpertWork& each) {
  counts += each.counts;
  memory_bytes += each.memory_bytes;
  disk_bytes += each.disk_bytes;
  return *this;
}

ordered_json work_json(const ExpertWork& work) {
  return {
      {"chosen", work.counts.chosen},       {"hits", work.counts.hits},
      {"read_ahead", work.counts.expected}, {"read_in_vain", work.counts.read_in_vain},
      {"lost", work.counts.lost},           {"waited_seconds", seconds_of(work.counts.waited_ns)},
      {"came", work.counts.came},           {"left", work.counts.came - work.counts.num_resident},
      {"memory_bytes", work.memory_bytes},  {"disk_bytes", work.disk_bytes}};
}

ExpertWork ExpertPlaces::take(run::ExpertPlaces places) {
  const auto [found, is_first] = ranks_.try_emplace(places.rank);
  run::ExpertPlaces before = std::exchange(found->second, std::move(places));
  const run::ExpertPlaces& now = found->second;
  if (now.read_bytes < before.read_bytes || sum_of(now).chosen < sum_of(before).chosen) before = {};
  const bool counts = !is_first || !goes_on_;
  for (size_t i = 0; i < now.layers.size(); ++i) {
    ResidencyCounts& sum = layers_[now.layers[i]];
    if (!counts) continue;
    sum += now.counts[i] - (before.layers.empty() ? ResidencyCounts() : before.counts[i]);
  }
  if (!counts) return {};
  ExpertWork work = work_of(now);
  const ExpertWork past = work_of(before);
  work.counts = work.counts - past.counts;
  work.memory_bytes -= past.memory_bytes;
  work.disk_bytes -= past.disk_bytes;
  return work;
}

std::map<int, ExpertPlaces::Layer> ExpertPlaces::layers() const {
  std::map<int, Layer> layers;
  for (const auto& [layer, counts] : layers_) layers[layer].counts = counts;
  for (const auto& [rank, places] : ranks_) {
    for (size_t i = 0; i < places.layers.size(); ++i) {
      layers[places.layers[i]].num_resident += places.counts[i].num_resident;
    }
  }
  return layers;
}

std::string ExpertPlaces::metrics() const {
  if (!exist()) return "";
  std::string text;
  const auto add = [&](const char* name, const char* type, const char* help,
                       const std::function<std::string(const run::ExpertPlaces&)>& value) {
    text += metric_head(name, type, help);
    for (const auto& [rank, places] : ranks_) {
      if (places.layers.empty()) continue;
      text += fmt::format("{}{{ep_rank=\"{}\"}} {}\n", name, rank, value(places));
    }
  };
  const auto count = [&](const char* name, const char* help, int64_t ResidencyCounts::* member) {
    add(name, "counter", help, [member](const run::ExpertPlaces& places) {
      return fmt::format("{}", sum_of(places).*member);
    });
  };
  const auto add_layers = [&](const char* name, const char* type, const char* help,
                              const std::function<int64_t(const Layer&)>& value) {
    text += metric_head(name, type, help);
    for (const auto& [layer, each] : layers()) {
      text += fmt::format("{}{{layer=\"{}\"}} {}\n", name, layer, value(each));
    }
  };
  add("wideep_experts_resident", "gauge", "Experts of all layers that stay in memory.",
      [](const auto& places) { return fmt::format("{}", sum_of(places).num_resident); });
  add("wideep_experts_owned", "gauge", "Experts of all layers that the rank computes.",
      [](const auto& places) { return fmt::format("{}", places.num_owned); });
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
  count("wideep_experts_came_total", "Experts that came into memory to stay.",
        &ResidencyCounts::came);
  add("wideep_experts_left_total", "counter", "Experts that left memory, for others or unread.",
      [](const auto& places) {
        const ResidencyCounts sum = sum_of(places);
        return fmt::format("{}", sum.came - sum.num_resident);
      });
  add("wideep_expert_wait_seconds_total", "counter",
      "Time of the rank with nothing to do but to wait for experts.",
      [](const auto& places) { return fmt::format("{}", seconds_of(sum_of(places).waited_ns)); });
  add("wideep_expert_memory_bytes_total", "counter",
      "Bytes of chosen experts that were in memory because they stay there.",
      [](const auto& places) { return fmt::format("{}", work_of(places).memory_bytes); });
  add("wideep_expert_read_bytes_total", "counter", "Bytes of experts read from the packed weights.",
      [](const auto& places) { return fmt::format("{}", places.read_bytes); });
  add("wideep_expert_read_seconds_total", "counter", "Time with at least one read in flight.",
      [](const auto& places) { return fmt::format("{}", places.read_seconds); });
  add_layers("wideep_expert_layer_resident", "gauge", "Experts of the layer that stay in memory.",
             [](const Layer& each) { return each.num_resident; });
  add_layers("wideep_expert_layer_chosen_total", "counter",
             "Experts of the layer that had tokens, once for each iteration.",
             [](const Layer& each) { return each.counts.chosen; });
  add_layers("wideep_expert_layer_chosen_resident_total", "counter",
             "Of those, were in memory because they stay there.",
             [](const Layer& each) { return each.counts.hits; });
  return text;
}

ordered_json ExpertPlaces::json() const {
  if (!exist()) return nullptr;
  ordered_json ranks = ordered_json::array(), all_layers = ordered_json::array();
  for (const auto& [rank, places] : ranks_) {
    if (places.layers.empty()) continue;
    ordered_json each = work_json(work_of(places));
    each["rank"] = rank;
    each["resident"] = sum_of(places).num_resident;
    each["owned"] = places.num_owned;
    each["records"] = places.num_records;
    each["record_bytes"] = places.record_bytes;
    each["read_seconds"] = places.read_seconds;
    ranks.push_back(std::move(each));
  }
  for (const auto& [layer, each] : layers()) {
    all_layers.push_back({{"layer", layer},
                          {"resident", each.num_resident},
                          {"chosen", each.counts.chosen},
                          {"hits", each.counts.hits},
                          {"read_ahead", each.counts.expected},
                          {"came", each.counts.came}});
  }
  return {{"ranks", std::move(ranks)}, {"layers", std::move(all_layers)}};
}

}  // namespace wideep::server
