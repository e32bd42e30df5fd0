// SPDX-License-Identifier: Apache-2.0
//
// wideep balance replay: runs the online balancer on recorded routing, without weights.
//
// The options become online::ReplayOptions, and online/replay.h does the work. Those that a policy,
// or another option, leaves without effect are refused: a replay is made to compare settings, and
// one that silently does nothing would be compared with itself.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/progress.h"
#include "base/try.h"
#include "commands.h"
#include "online/replay.h"
#include "replay_output.h"

namespace wideep::tools {
namespace {

struct ReplayCommand {
  std::string trace;
  recordings::TraceShape trace_shape;
  std::optional<int> num_slots;
  std::optional<int> layer_updates;
  std::string policy = "wideep";
  std::optional<std::string> share_update;
  std::optional<double> tolerance;
  std::optional<double> rows_per_move;
  std::optional<int64_t> horizon_tokens;
  std::optional<int> max_moves;
  std::optional<int64_t> bytes_per_expert;
  std::optional<double> iteration_ms;
  std::optional<double> copy_gb_per_second;
  std::vector<std::string> domains;
  online::ReplayOptions replay;
  bool json = false;
};

// TensorRT-LLM's policy has none of these settings: each would silently have no effect.
Status check_policy_options(const ReplayCommand& command) {
  if (command.policy != "trt") return {};
  const std::pair<bool, const char*> given[] = {
      {command.share_update.has_value(), "--share-update"},
      {command.tolerance.has_value(), "--tolerance"},
      {command.rows_per_move.has_value(), "--rows-per-move"},
      {command.horizon_tokens.has_value(), "--horizon-tokens"},
      {command.max_moves.has_value(), "--max-moves"}};
  for (const auto& [is_given, name] : given) {
    if (!is_given) continue;
    return invalid_input(fmt::format(
        "{}: has no effect with --policy trt, which plans every update from scratch; leave it out",
        name));
  }
  return {};
}

Result<online::PolicyOptions> policy_options(const ReplayCommand& command) {
  WIDEEP_TRY(check_policy_options(command));
  online::PolicyOptions options;
  WIDEEP_TRY_ASSIGN(options.policy, online::parse_policy(command.policy));
  if (command.share_update) {
    WIDEEP_TRY_ASSIGN(options.share_update, online::parse_share_update(*command.share_update));
  }
  options.layer_updates_per_iter = command.layer_updates.value_or(command.trace_shape.num_layers);
  options.tolerance = command.tolerance.value_or(options.tolerance);
  options.rows_per_move = command.rows_per_move.value_or(options.rows_per_move);
  options.horizon_tokens =
      command.horizon_tokens.value_or(online::default_horizon_tokens(command.replay.shape.ep_size));
  options.max_moves = command.max_moves.value_or(options.max_moves);
  options.bytes_per_expert = command.bytes_per_expert.value_or(0);
  if (!command.bytes_per_expert || options.bytes_per_expert > 0) return options;
  return invalid_input(fmt::format("--model-bytes-per-expert: expected more than 0 bytes, found {}",
                                   options.bytes_per_expert));
}

Status set_delays(ReplayCommand* command) {
  if (command->iteration_ms && *command->iteration_ms <= 0.0) {
    return invalid_input(fmt::format("--iteration-ms: expected more than 0 milliseconds, found {}",
                                     *command->iteration_ms));
  }
  command->replay.iteration_ms = command->iteration_ms.value_or(0.0);
  if (!command->copy_gb_per_second) return {};
  if (*command->copy_gb_per_second <= 0.0) {
    return invalid_input(fmt::format("--copy-gb-per-second: expected more than 0, found {}",
                                     *command->copy_gb_per_second));
  }
  if (!command->iteration_ms || !command->bytes_per_expert) {
    return invalid_input(
        "--copy-gb-per-second: has no effect without --iteration-ms and "
        "--model-bytes-per-expert; give both, or leave it out");
  }
  command->replay.copy_bytes_per_second = 1e9 * *command->copy_gb_per_second;
  return {};
}

Status run(ReplayCommand command) {
  online::ReplayOptions& options = command.replay;
  WIDEEP_TRY(recordings::check_trace_shape(command.trace_shape));
  options.shape.num_experts = command.trace_shape.num_experts;
  options.shape.num_slots = command.num_slots.value_or(options.shape.num_experts);
  WIDEEP_TRY(balance::check_plan_shape(options.shape));
  WIDEEP_TRY_ASSIGN(options.policy, policy_options(command));
  WIDEEP_TRY(set_delays(&command));
  WIDEEP_TRY_ASSIGN(const online::RequestTrace trace,
                    online::read_request_trace(command.trace, command.trace_shape));
  Result<std::vector<int>> domains = online::find_domains(trace, command.domains);
  if (!domains.ok()) return domains.status().at("--domains");
  options.stream.domains = std::move(domains).value();
  base::Progress progress("replaying", online::num_iterations(trace, options.stream), "iterations");
  options.iteration_done = [&progress] { progress.step(); };
  Result<online::ReplayResult> result = online::replay(trace, options);
  if (!result.ok()) return result.status().at(command.trace);
  const Replayed replayed{.directory = command.trace,
                          .trace = &trace,
                          .options = &options,
                          .bytes_known = command.bytes_per_expert.has_value(),
                          .result = &*result};
  std::fputs((command.json ? replay_json(replayed) : replay_table(replayed)).c_str(), stdout);
  return {};
}

void add_trace_options(command_line::Command app, ReplayCommand* command) {
  app.add_option("--trace", command->trace,
                 "Directory with trace_index.csv (columns token_offset, n_tokens, domain or "
                 "dataset) and <domain>.ids.u8 or trace_ids.u8 (or .u16)")
      .path()
      .required();
  app.add_option("--trace-layers", command->trace_shape.num_layers,
                 "Number of MoE layers in the trace")
      .required();
  app.add_option("--trace-top-k", command->trace_shape.top_k, "Experts per token and layer")
      .required();
  app.add_option("--num-experts", command->trace_shape.num_experts, "Number of experts per layer")
      .required();
  app.add_option("--domains", command->domains,
                 "Domains of text to replay, one after the other: A,B,C (default: all, in the "
                 "order of the index)")
      .separate_values_by(',');
  online::StreamOptions& stream = command->replay.stream;
  app.add_option("--cycles", stream.cycles, "How often to go through the domains (default: 1)");
  app.add_option("--in-flight", stream.in_flight,
                 "Requests that run at the same time (default: 64)");
  app.add_option("--iteration-tokens", stream.iteration_tokens,
                 "Tokens per iteration (default: 2048)");
  app.add_option(
      "--seed", stream.seed,
      "Seed of the order of requests; 0 (default): the first cycle keeps the order of the index");
}

void add_policy_options(command_line::Command app, ReplayCommand* command) {
  app.add_option("--policy", command->policy,
                 "wideep (default), or trt, which plans every update from scratch");
  app.add_option("--layer-updates-per-iter", command->layer_updates,
                 "Most layers that may get a new plan in one iteration (default: all)");
  app.add_option("--share-update", command->share_update,
                 "Compute the shares of replicas from each iteration's own counts (iteration, "
                 "default) or from those of the load window (window)");
  app.add_option("--tolerance", command->tolerance,
                 "Imbalance ratio below which a layer is not updated (default: 0.003)");
  app.add_option("--rows-per-move", command->rows_per_move,
                 "Cost of copying an expert, as the number of rows that a rank could compute "
                 "instead (default: 32)");
  app.add_option("--horizon-tokens", command->horizon_tokens,
                 "Tokens within which a move must save more than it costs (default: 16384 up to 8 "
                 "ranks, 131072 for 32, as much more as there are more ranks)");
  app.add_option("--max-moves", command->max_moves,
                 "Most experts that one update of a layer may move (default: all moves that save "
                 "more than they cost)");
}

}  // namespace

void add_balance_replay_command(command_line::Command balance, Status* status) {
  auto command = std::make_shared<ReplayCommand>();
  const command_line::Command app = balance.add_command(
      "replay", "Run the online balancer on a recorded trace: imbalance over time, and moves");
  add_trace_options(app, command.get());
  online::ReplayOptions& replay = command->replay;
  app.add_option("--ep-size", replay.shape.ep_size, "Number of ranks").required();
  app.add_option("--num-slots", command->num_slots,
                 "Slots per layer over all ranks (default: one per expert)");
  app.add_option(
      "--planner", replay.planner,
      "Planner of the first placement, which is planned on the first window (default: wideep)");
  add_policy_options(app, command.get());
  app.add_option("--window-tokens", replay.window_tokens,
                 "Tokens per line of the report (default: 16384)");
  app.add_option(
      "--copy-iterations", replay.copy_iterations,
      "Iterations that copying experts takes, before a plan comes into use (default: 1)");
  app.add_option("--iteration-ms", command->iteration_ms,
                 "How long an iteration takes: plans whose computing and copying take longer come "
                 "into use later (default: whatever they take, they need --copy-iterations)");
  app.add_option("--copy-gb-per-second", command->copy_gb_per_second,
                 "How fast a rank copies experts, with --iteration-ms and "
                 "--model-bytes-per-expert (default: 10)");
  app.add_flag("--start-in-order", replay.start_in_order,
               "Start with the experts in order instead of a plan");
  app.add_option("--model-bytes-per-expert", command->bytes_per_expert,
                 "Bytes of one expert's weights in one layer, which one move copies");
  app.add_flag("--json", command->json, "Print JSON");
  app.on_run([command, status] { *status = run(*command); });
}

}  // namespace wideep::tools
