// SPDX-License-Identifier: Apache-2.0
#include "advise_beyond_memory.h"

#include <fmt/format.h>

#include "text_table.h"

namespace wideep::tools {
namespace {

using advise::PartlyResident;
using advise::ReadingTime;
using nlohmann::ordered_json;

double disk_of(const cost::Hardware& hardware) {
  return hardware.disk_bandwidth > 0.0 ? hardware.disk_bandwidth : advise::kAssumedDiskBandwidth;
}

std::string table_of(const BeyondMemory& beyond) {
  TextColumn speed{.title = "tokens/s"}, bounds{.title = "from … to"}, share{.title = "in memory"},
      resident{.title = "GB"}, hits{.title = "hit rate"}, memory{.title = "MB a token"},
      disk{.title = "from disk"}, computing{.title = "computing ms"},
      reading{.title = "reading ms"}, format{.title = "dtype", .is_text = true};
  for (const PartlyResident& each : beyond.found) {
    const advise::ReadingForecast& forecast = each.forecast;
    const ReadingTime& time = forecast.expected;
    speed.cells.push_back(fmt::format("{:.2f}", time.tokens_per_second()));
    bounds.cells.push_back(fmt::format("{:.2f} … {:.2f}", forecast.uniform.tokens_per_second(),
                                       forecast.upper.tokens_per_second()));
    share.cells.push_back(fmt::format("{:.3f}", forecast.share));
    resident.cells.push_back(fmt::format("{:.1f}", each.resident_bytes / 1e9));
    hits.cells.push_back(fmt::format("{:.3f}", time.hit_rate));
    memory.cells.push_back(fmt::format("{:.0f}", time.memory_bytes / 1e6));
    disk.cells.push_back(fmt::format("{:.0f}", time.disk_bytes / 1e6));
    computing.cells.push_back(fmt::format("{:.1f}", time.computing * 1e3));
    reading.cells.push_back(fmt::format("{:.1f}", time.reading * 1e3));
    format.cells.emplace_back(kernels::weight_format_name(each.layout.format));
  }
  return text_table(
      {speed, bounds, share, resident, hits, memory, disk, computing, reading, format});
}

std::string options_of(const BeyondMemory& beyond, const PartlyResident& best) {
  return fmt::format("--model {} --dtype {} --packed-cache DIR --expert-memory {:.0f}MB",
                     beyond.model, kernels::weight_format_name(best.layout.format),
                     best.resident_bytes / 1e6);
}

}  // namespace

std::string rates_text(const advise::HitRates& rates) {
  if (!rates.upper) return rates.expected.source + "; at worst a uniform router";
  return fmt::format("{} stands for the model's; at best {}, at worst a uniform router",
                     rates.expected.source, rates.upper->source);
}

std::string beyond_memory_text(const BeyondMemory& beyond) {
  const cost::Hardware& hardware = beyond.question.hardware;
  const PartlyResident& best = beyond.found.front();
  const double usable = hardware.memory_bytes * hardware.devices_per_node *
                        beyond.question.choices.memory_share * hardware.nodes;
  std::string text = fmt::format("hardware     {} ({})\n", hardware.name, hardware.device);
  text += fmt::format(
      "memory       needs {:.1f} GB in {}, has {:.1f}: {:.0f} % of the experts stay in memory, the "
      "others are read\n",
      (best.dense_bytes + best.expert_bytes) * hardware.nodes / 1e9,
      kernels::weight_format_name(best.layout.format), usable / 1e9, 100.0 * best.forecast.share);
  text += fmt::format("hit rate     {}\n", rates_text(beyond.rates));
  text += fmt::format("disk         {:.1f} GB/s{}{}\n", disk_of(hardware) / 1e9,
                      hardware.nodes > 1 ? " on each node" : "",
                      hardware.disk_bandwidth > 0.0 ? "" : ", assumed: give disk: {bandwidth: …}");
  text += fmt::format("requests     {} at a time; prompts are not predicted\n\n", best.requests);
  text += table_of(beyond);
  const ReadingTime& time = best.forecast.expected;
  text += fmt::format(
      "\ntime         a layer computes what is in memory while it reads the rest; all overlapped "
      "{:.2f} tokens/s, nothing {:.2f}\n",
      time.tokens / time.bound_seconds(), time.tokens / time.seconds_without_overlap());
  return text + fmt::format("run          wideep serve {}\n", options_of(beyond, best));
}

ordered_json forecast_json(const advise::ReadingForecast& forecast) {
  const ReadingTime& time = forecast.expected;
  return {{"experts_in_memory", forecast.share},
          {"hit_rate", time.hit_rate},
          {"hit_rate_upper", forecast.upper.hit_rate},
          {"hit_rate_uniform", forecast.uniform.hit_rate},
          {"memory_bytes_per_token", time.memory_bytes},
          {"disk_bytes_per_token", time.disk_bytes},
          {"computing_seconds", time.computing},
          {"reading_seconds", time.reading},
          {"iteration_seconds", time.seconds},
          {"tokens_per_second", time.tokens_per_second()},
          {"tokens_per_second_upper", forecast.upper.tokens_per_second()},
          {"tokens_per_second_uniform", forecast.uniform.tokens_per_second()},
          {"tokens_per_second_all_overlapped", time.tokens / time.bound_seconds()},
          {"tokens_per_second_without_overlap", time.tokens / time.seconds_without_overlap()}};
}

ordered_json beyond_memory_json(const BeyondMemory& beyond) {
  const cost::Hardware& hardware = beyond.question.hardware;
  ordered_json json = {{"hardware", hardware.name},
                       {"hit_rates", beyond.rates.expected.source},
                       {"disk_bytes_per_second", disk_of(hardware)},
                       {"disk_is_assumed", hardware.disk_bandwidth <= 0.0},
                       {"beyond_memory", ordered_json::array()}};
  for (const PartlyResident& each : beyond.found) {
    ordered_json line = {{"dtype", kernels::weight_format_name(each.layout.format)},
                         {"nodes", hardware.nodes},
                         {"requests", each.requests},
                         {"dense_bytes_per_node", each.dense_bytes},
                         {"expert_bytes_per_node", each.expert_bytes},
                         {"resident_bytes_per_node", each.resident_bytes}};
    line.update(forecast_json(each.forecast));
    json["beyond_memory"].push_back(std::move(line));
  }
  return json;
}

}  // namespace wideep::tools
