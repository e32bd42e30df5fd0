// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/try.h"
#include "formats/files.h"
#include "formats/json_text.h"
#include "recordings/routing_log.h"
#include "recordings/routing_log_version.h"

namespace wideep::recordings {
namespace {

using nlohmann::ordered_json;

ordered_json to_json(const RoutingLog::Iteration& iteration) {
  return {{"iteration", iteration.iteration},
          {"prompt_tokens", iteration.prompt_tokens},
          {"generated_tokens", iteration.generated_tokens},
          {"sent", iteration.sent},
          {"counts", iteration.counts},
          {"critical_path_us", iteration.critical_path_us}};
}

ordered_json to_json(const RoutingLog::LayerUpdate& update) {
  return {{"layer", update.layer},
          {"decided", update.decided},
          {"switched", update.switched},
          {"moves", update.moves}};
}

// The keys before the long lists, without braces. Those lists are written one element per line,
// so that a person can read and compare the file.
std::string head_text(const RoutingLog& log) {
  const ordered_json head = {{"version", kRoutingLogVersion},
                             {"model", log.model},
                             {"ep_size", log.ep_size},
                             {"num_experts", log.num_experts},
                             {"num_slots", log.num_slots},
                             {"top_k", log.top_k},
                             {"layers", log.layers},
                             {"requests", log.requests},
                             {"tokens_per_second", log.tokens_per_second},
                             {"critical_path_ms", log.critical_path_ms},
                             {"wall_ms", log.wall_ms}};
  std::string text;
  for (const auto& [key, value] : head.items()) {
    text += fmt::format("\"{}\":{},\n", key, formats::json_text(value));
  }
  return text;
}

template <typename Items, typename Function>
std::string one_a_line(const Items& items, Function to_text) {
  std::string text = "[";
  for (const auto& item : items) {
    text += text.size() == 1 ? "\n" : ",\n";
    text += to_text(item);
  }
  return text + "]";
}

}  // namespace

std::string format_routing_log(const RoutingLog& log) {
  std::string text = "{" + head_text(log) + "\"iterations\":";
  text += one_a_line(log.iterations,
                     [](const auto& iteration) { return formats::json_text(to_json(iteration)); });
  if (!log.layer_updates.empty()) {  // without them a file is as earlier builds wrote it
    text += ",\n\"layer_updates\":";
    text += one_a_line(log.layer_updates,
                       [](const auto& update) { return formats::json_text(to_json(update)); });
  }
  text += ",\n\"request_counts\":";
  text += one_a_line(log.request_counts,
                     [](const auto& counts) { return formats::json_text(ordered_json(counts)); });
  return text + "}\n";
}

Status write_routing_log(const std::string& path, const RoutingLog& log) {
  WIDEEP_TRY(check_routing_log(log).at(path));
  const std::string text = format_routing_log(log);
  // A file that the reader would refuse must not be written.
  if (text.size() > kMaxRoutingLogBytes) {
    return invalid_input(
        fmt::format("{}: the log of {} iterations takes {} bytes, expected at most {}; record "
                    "fewer iterations",
                    path, log.iterations.size(), text.size(), kMaxRoutingLogBytes));
  }
  return formats::write_file(path, text);
}

}  // namespace wideep::recordings
