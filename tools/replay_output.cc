// SPDX-License-Identifier: Apache-2.0
//
// A line for each window of the trace, of which the first was planned on and shows no figures:
// judged by itself a plan looks better than it is. The column "past" appears only where it can
// differ.
#include "replay_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "plan_output.h"
#include "planning.h"

namespace wideep::tools {
namespace {

using nlohmann::ordered_json;
using online::ReplayFigures;
using online::ReplayResult;
using online::ReplayWindow;

bool splits_by_window(const Replayed& replayed) {
  return replayed.options->policy.share_update == online::ShareUpdate::kWindow;
}
bool is_trt(const Replayed& replayed) {
  return replayed.options->policy.policy == online::PolicyKind::kTrt;
}
// The column "past" (an ideal plan of the window before, with its shares) is only of interest if
// shares do not follow each iteration's own counts.
bool shows_past(const Replayed& replayed) { return splits_by_window(replayed) || is_trt(replayed); }

std::vector<std::string> names_of(const Replayed& replayed, const ReplayWindow& window) {
  std::vector<std::string> names;
  for (const int domain : window.domains) {
    names.push_back(replayed.trace->domains[static_cast<size_t>(domain)]);
  }
  return names;
}

// The domains of a window; only the first if there are more than two, so that the line stays short.
std::string domains_text(const Replayed& replayed, const ReplayWindow& window) {
  const std::vector<std::string> names = names_of(replayed, window);
  if (names.size() > 2) return fmt::format("{}, {} more", names[0], names.size() - 1);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string split_text(const Replayed& replayed) {
  if (is_trt(replayed)) return "equal split";
  return fmt::format("shares of the {}", online::name_of(replayed.options->policy.share_update));
}

std::string facts(const Replayed& replayed) {
  const online::ReplayOptions& options = *replayed.options;
  const ReplayResult& result = *replayed.result;
  return fmt::format(
      "{} layers, {} experts: {} slots on {} ranks; {} tokens in iterations of {}, {} requests at "
      "once.\nPolicy {}, {}, {} of {} layers may change per iteration, in service {} later{}.\n",
      replayed.trace->shape.num_layers, options.shape.num_experts, options.shape.num_slots,
      options.shape.ep_size, result.num_tokens, options.stream.iteration_tokens,
      options.stream.in_flight, online::name_of(options.policy.policy), split_text(replayed),
      options.policy.layer_updates_per_iter, replayed.trace->shape.num_layers,
      count_of(options.copy_iterations + 1, "iteration"),
      options.iteration_ms > 0.0
          ? fmt::format(", at most {} where planning and copying take longer than {} ms",
                        std::max<int64_t>(result.longest_delay, options.copy_iterations + 1),
                        options.iteration_ms)
          : "");
}

std::string figures_text(const Replayed& replayed, const ReplayFigures& figures) {
  std::string text =
      fmt::format("{:>9.4f}{:>9.4f}{:>9.4f}", figures.off, figures.planned, figures.online);
  if (shows_past(replayed)) text += fmt::format("{:>9.4f}", figures.past);
  return text + fmt::format("{:>9.4f}", figures.perfect);
}

std::string window_line(const Replayed& replayed, const ReplayWindow& window, bool planned_on) {
  const std::string figures =
      planned_on ? fmt::format("{:>{}}", "planned on", shows_past(replayed) ? 45 : 36)
                 : figures_text(replayed, window.figures);
  return fmt::format("{:<12}{}{:>9}  {}\n", window.first_iteration, figures, window.moves,
                     domains_text(replayed, window));
}

std::string summary(const Replayed& replayed) {
  const ReplayResult& result = *replayed.result;
  std::string text =
      fmt::format("{:<12}{}{:>9}\n{} in {} of layers: {:.2f} per layer and {} tokens", "mean",
                  figures_text(replayed, result.mean), result.moves,
                  count_of(static_cast<int>(result.moves), "move"),
                  count_of(static_cast<int>(result.updates), "update"),
                  result.moves_per_layer_and_window, replayed.options->window_tokens);
  if (replayed.bytes_known) {
    text += fmt::format(", {}", base::byte_size(static_cast<uint64_t>(result.bytes)));
  }
  return text + fmt::format(
                    "; planning took {} per iteration, at most {}\n",
                    duration_text(result.plan_seconds / static_cast<double>(result.num_iterations)),
                    duration_text(result.longest_plan_seconds));
}

ordered_json figures_json(const ReplayFigures& figures) {
  return {{"imbalance_off", figures.off},
          {"imbalance_static", figures.planned},
          {"imbalance_online", figures.online},
          {"imbalance_past", figures.past},
          {"imbalance_perfect", figures.perfect}};
}

ordered_json window_json(const Replayed& replayed, const ReplayWindow& window, bool planned_on) {
  ordered_json json = {{"first_iteration", window.first_iteration},
                       {"num_iterations", window.num_iterations},
                       {"domains", names_of(replayed, window)}};
  if (!planned_on) json.update(figures_json(window.figures));
  json["updates"] = window.updates;
  json["moves"] = window.moves;
  return json;
}

ordered_json settings_json(const Replayed& replayed) {
  const online::ReplayOptions& options = *replayed.options;
  ordered_json json = {{"trace", replayed.directory},
                       {"ep_size", options.shape.ep_size},
                       {"num_experts", options.shape.num_experts},
                       {"num_slots", options.shape.num_slots},
                       {"planner", options.planner},
                       {"policy", online::name_of(options.policy.policy)}};
  if (!is_trt(replayed)) json["share_update"] = online::name_of(options.policy.share_update);
  json["layer_updates_per_iter"] = options.policy.layer_updates_per_iter;
  json["copy_iterations"] = options.copy_iterations;
  if (options.iteration_ms > 0.0) json["iteration_ms"] = options.iteration_ms;
  json["iteration_tokens"] = options.stream.iteration_tokens;
  json["in_flight"] = options.stream.in_flight;
  json["window_tokens"] = options.window_tokens;
  return json;
}

}  // namespace

std::string replay_table(const Replayed& replayed) {
  std::string text =
      facts(replayed) +
      "Imbalance ratio (max / mean - 1), mean over layers and iterations; 0 is perfect.\n" +
      fmt::format("{:<12}{:>9}{:>9}{:>9}{}{:>9}{:>9}  text\n", "iteration", "off", "static",
                  "online", shows_past(replayed) ? fmt::format("{:>9}", "past") : "", "perfect",
                  "moves");
  bool planned_on = true;
  for (const ReplayWindow& window : replayed.result->windows) {
    text += window_line(replayed, window, planned_on);
    planned_on = false;
  }
  return text + summary(replayed);
}

std::string replay_json(const Replayed& replayed) {
  const ReplayResult& result = *replayed.result;
  ordered_json root = settings_json(replayed);
  root["num_tokens"] = result.num_tokens;
  root["num_iterations"] = result.num_iterations;
  root["windows"] = ordered_json::array();
  for (const ReplayWindow& window : result.windows) {
    root["windows"].push_back(window_json(replayed, window, root["windows"].empty()));
  }
  root["mean"] = figures_json(result.mean);
  root["updates"] = result.updates;
  root["moves"] = result.moves;
  root["moves_per_layer_and_window"] = result.moves_per_layer_and_window;
  if (replayed.bytes_known) root["bytes"] = result.bytes;
  root["plan_seconds"] = result.plan_seconds;
  root["longest_plan_seconds"] = result.longest_plan_seconds;
  root["longest_delay_iterations"] = result.longest_delay;
  return json_text(root);
}

}  // namespace wideep::tools
