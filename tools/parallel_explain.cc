// SPDX-License-Identifier: Apache-2.0
//
// wideep parallel explain: the part of every rank: coordinates, layers, heads and slots, the memory
// it holds and the bytes it sends.
//
// All of it is read from the plan that a run would have (plan_run), so that it cannot say anything
// else than a run does. Only the bytes sent are computed here, as expected values: they depend on
// routing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/try.h"
#include "commands.h"
#include "ep/strategy.h"
#include "formats/json_text.h"
#include "model_run.h"
#include "parallel_options.h"

namespace wideep::tools {
namespace {

using base::byte_size;
using nlohmann::ordered_json;

constexpr uint64_t kCacheExampleTokens = 1024;

struct Options {
  ParallelOptions parallel;
  std::string model_dir;
  std::optional<int> world;
  bool json = false;
};

// The memory that online balancing adds.
struct OnlineBytes {
  uint64_t pool = 0;  // host pool, once per node
  uint64_t spares_per_rank = 0;
};

// Bytes that a rank writes for other ranks, per token of its own: expected values if all slots are
// chosen equally often.
struct Sent {
  double rows =
      0.0;  // per MoE layer: sent to the ranks of its slots, or published once (all-gather)
  double results = 0.0;  // per MoE layer: results that the tokens' ranks pull
  double heads = 0.0;    // per layer, if ranks share batches (attention TP): output of its heads
  double outputs = 0.0;  // per layer, if ranks share batches: its columns of the output projection
  double cache = 0.0;    // per layer, if ranks share sequences (CP): keys and values, read in place
  double stage = 0.0;    // to the next pipeline stage: the residual stream
  double between = 0.0;  // per MoE layer, if ranks share experts (moe_tp): results of gate and up
};

struct Explained {
  run::RunPlan plan;
  OnlineBytes online;
  Sent sent;

  const model::ModelConfig& config() const { return plan.model.config; }
  bool shares_batches() const { return plan.joint.has_value(); }
};

OnlineBytes online_bytes(const run::RunPlan& plan) {
  OnlineBytes bytes;
  for (const run::OnlinePlan& stage : plan.online) {
    if (!stage.balances()) continue;
    bytes.pool += stage.pool_bytes();
    bytes.spares_per_rank = std::max(bytes.spares_per_rank, stage.spare_bytes_per_rank());
  }
  return bytes;
}

Sent sent_by_rank(const run::RunPlan& plan) {
  const ep::DispatchShape& shape = plan.dispatch;
  const model::ModelConfig& config = plan.model.config;
  const double elsewhere = 1.0 - 1.0 / shape.ep_size;
  const bool reduced = shape.combine == ep::Combine::kReduced;
  Sent sent;
  if (shape.ep_size > 1) sent.rows = ep::strategy_of(shape).bytes();
  sent.results = static_cast<double>(shape.result_bytes) *
                 (reduced ? ep::expected_peers(shape) : shape.top_k * shape.num_slices * elsewhere);
  if (shape.num_slices > 1) {
    sent.between = static_cast<double>(shape.top_k) * config.moe_intermediate_size *
                   static_cast<double>(dtype_bytes(plan.moe.row_dtype));
  }
  if (plan.mapping.sizes().cp > 1) {
    sent.cache = static_cast<double>(run::fullest(plan.memory).kv_page_bytes) /
                 plan.layers_of(0).count() / kernels::kPageTokens;
  }
  if (plan.pipeline.num_stages > 1) {
    sent.stage = sizeof(float) * static_cast<double>(config.hidden_size);
  }
  if (plan.joint) {
    sent.heads =
        sizeof(float) * static_cast<double>(config.num_heads * config.value_dim()) / shape.ep_size;
    sent.outputs = sizeof(float) * static_cast<double>(config.hidden_size) / shape.ep_size;
  }
  return sent;
}

Result<Explained> explain(const Options& options, const parallel::ParallelConfig& config) {
  const int world = config.mapping().world_size();
  if (options.world && *options.world != world) {
    return invalid_input(fmt::format(
        "--world: expected {} ranks (tensor_parallel_size {} × "
        "pipeline_parallel_size {} × "
        "context_parallel_size {} of {}), found {}",
        world, config.sizes.tp, config.sizes.pp, config.sizes.cp, config.name, *options.world));
  }
  WIDEEP_TRY_ASSIGN(ModelRun run, model_run(options.model_dir, options.parallel.format(), config));
  // A cache size is needed to make a plan, but is not part of the output.
  run.options.cache_pages = 1;
  WIDEEP_TRY_ASSIGN(run::RunPlan plan, run::plan_run(run.model, run.options, base::read_machine()));
  const OnlineBytes online = online_bytes(plan);
  const Sent sent = sent_by_rank(plan);
  return Explained{std::move(plan), online, sent};
}

// ---- ranks ----

struct RankPart {
  parallel::Coordinates at;
  parallel::LayerRange layers;
  model::HeadRange heads;
  int first_slot = 0, num_slots = 0;
};

RankPart part_of(const Explained& all, int rank) {
  const model::ModelConfig& config = all.config();
  const int sharers = all.shares_batches() ? all.plan.mapping.sizes().tp : 1;
  const int kv_heads = config.is_mla() ? 1 : config.num_kv_heads;
  const int slots = all.plan.dispatch.slots_per_rank;
  const parallel::Coordinates at = all.plan.mapping.coordinates(rank);
  return {.at = at,
          .layers = all.plan.layers_of(rank),
          .heads = model::part_of_heads(all.shares_batches() ? at.tp_rank : 0, sharers,
                                        config.num_heads, kv_heads),
          .first_slot = at.moe_ep_rank * slots,
          .num_slots = config.has_experts() ? slots : 0};
}

std::string range(int first, int count) {
  if (count == 0) return "none";
  return count == 1 ? fmt::format("{}", first) : fmt::format("{}-{}", first, first + count - 1);
}

std::string ranks_text(const Explained& all) {
  std::string text = fmt::format("{:>5}{:>5}{:>5}{:>5}{:>8}{:>8}{:>9}{:>13}{:>10}{:>13}\n", "rank",
                                 "tp", "cp", "pp", "moe_ep", "moe_tp", "layers", "query heads",
                                 all.config().is_mla() ? "latents" : "kv heads", "slots");
  for (int rank = 0; rank < all.plan.mapping.world_size(); ++rank) {
    const RankPart part = part_of(all, rank);
    text += fmt::format(
        "{:>5}{:>5}{:>5}{:>5}{:>8}{:>8}{:>9}{:>13}{:>10}{:>13}\n", rank, part.at.tp_rank,
        part.at.cp_rank, part.at.pp_rank, part.at.moe_ep_rank, part.at.moe_tp_rank,
        range(part.layers.first, part.layers.count()), range(part.heads.first, part.heads.count),
        range(part.heads.first_kv, part.heads.num_kv), range(part.first_slot, part.num_slots));
  }
  return text;
}

// ---- memory and messages ----

std::string memory_text(const Explained& all) {
  const run::MemoryPlan memory = run::fullest(all.plan.memory);
  const bool experts = all.config().has_experts();
  std::string once = fmt::format("weights{} {}", experts ? " outside the experts" : "",
                                 byte_size(memory.dense_weights));
  if (memory.joint_memory > 0)
    once += fmt::format(", shared rows {}", byte_size(memory.joint_memory));
  if (memory.shard_memory > 0)
    once += fmt::format(", rows between sharded experts {}", byte_size(memory.shard_memory));
  if (all.online.pool > 0) once += fmt::format(", host pool {}", byte_size(all.online.pool));
  std::string rank =
      experts ? fmt::format("slots {}, ", byte_size(memory.slots_per_rank)) : std::string();
  if (all.online.pool > 0)
    rank += fmt::format("spares {}, ", byte_size(all.online.spares_per_rank));
  return fmt::format(
      "holds   the machine, once: {}\n"
      "        each rank{}: {}messages {}, intermediate results {},\n"
      "        KV cache {} per {} tokens{}\n",
      once, all.plan.memory.size() > 1 ? " of the fullest stage" : "", rank,
      byte_size(memory.symmetric_memory_per_rank), byte_size(memory.working_memory_per_rank),
      byte_size(memory.kv_bytes_of_rank(kCacheExampleTokens)), kCacheExampleTokens,
      memory.state_bytes == 0
          ? ""
          : fmt::format(", state {} per request", byte_size(memory.state_bytes)));
}

std::string moe_text(const Explained& all) {
  if (!all.config().has_experts()) return "sends   nothing to experts: all layers are dense\n";
  std::string moe =
      fmt::format("sends   per MoE layer and token of its own: rows {:.0f} bytes, results {:.0f}",
                  all.sent.rows, all.sent.results);
  if (all.sent.between > 0.0)
    moe += fmt::format(", between the ranks of an expert {:.0f}", all.sent.between);
  return moe + "\n";
}

std::string sent_text(const Explained& all) {
  std::string moe = moe_text(all);
  if (all.sent.cache > 0.0) {
    moe += fmt::format(
        "        per layer and token of its own: keys and values {:.0f} bytes, which the other {} "
        "of its sequence read in place\n",
        all.sent.cache, all.plan.mapping.sizes().cp - 1);
  }
  if (all.sent.stage > 0.0)
    moe += fmt::format("        to the next stage, per token of its own: {:.0f} bytes\n",
                       all.sent.stage);
  if (!all.shares_batches()) return moe;
  return moe + fmt::format(
                   "        per layer and token of the batch: heads {:.0f} bytes, outputs {:.0f}\n",
                   all.sent.heads, all.sent.outputs);
}

std::string explained_text(const Explained& all) {
  const parallel::ParallelSizes& sizes = all.plan.mapping.sizes();
  return fmt::format(
             "{} ranks = tp {} × pp {} × cp {}; of tp, moe_ep {} × moe_tp {}\n"
             "batches {}\n\n",
             all.plan.mapping.world_size(), sizes.tp, sizes.pp, sizes.cp, sizes.moe_ep,
             sizes.moe_tp,
             all.shares_batches()
                 ? "of all ranks together: each computes a part of heads and columns"
                 : "of each rank its own (attention data parallel): all heads, its requests") +
         ranks_text(all) + "\n" + memory_text(all) + sent_text(all);
}

ordered_json rank_json(const Explained& all, int rank) {
  const RankPart part = part_of(all, rank);
  return {{"rank", rank},
          {"tp_rank", part.at.tp_rank},
          {"cp_rank", part.at.cp_rank},
          {"pp_rank", part.at.pp_rank},
          {"moe_ep_rank", part.at.moe_ep_rank},
          {"moe_tp_rank", part.at.moe_tp_rank},
          {"first_layer", part.layers.first},
          {"last_layer", part.layers.last - 1},
          {"first_head", part.heads.first},
          {"num_heads", part.heads.count},
          {"first_kv_head", part.heads.first_kv},
          {"num_kv_heads", part.heads.num_kv},
          {"first_slot", part.first_slot},
          {"num_slots", part.num_slots}};
}

ordered_json bytes_json(const run::MemoryPlan& stage) {
  return {{"dense_weights", stage.dense_weights},
          {"slots", stage.slots_per_rank},
          {"messages", stage.symmetric_memory_per_rank},
          {"intermediate_results", stage.working_memory_per_rank},
          {"kv_cache_per_1024_tokens", stage.kv_bytes(kCacheExampleTokens)},
          {"state_per_request", stage.state_bytes}};
}

ordered_json explained_json(const Explained& all) {
  const parallel::ParallelSizes& sizes = all.plan.mapping.sizes();
  const run::MemoryPlan memory = run::fullest(all.plan.memory);
  ordered_json ranks = ordered_json::array(), stages = ordered_json::array();
  for (const run::MemoryPlan& stage : all.plan.memory) stages.push_back(bytes_json(stage));
  for (int rank = 0; rank < all.plan.mapping.world_size(); ++rank)
    ranks.push_back(rank_json(all, rank));
  return {{"world_size", all.plan.mapping.world_size()},
          {"tensor_parallel_size", sizes.tp},
          {"pipeline_parallel_size", sizes.pp},
          {"context_parallel_size", sizes.cp},
          {"moe_expert_parallel_size", sizes.moe_ep},
          {"moe_tensor_parallel_size", sizes.moe_tp},
          {"shares_batches", all.shares_batches()},
          {"ranks", ranks},
          {"bytes_once",
           {{"dense_weights", memory.dense_weights},
            {"shared_rows", memory.joint_memory},
            {"sharded_expert_rows", memory.shard_memory},
            {"host_pool", all.online.pool}}},
          {"bytes_per_rank",
           {{"slots", memory.slots_per_rank},
            {"spares", all.online.spares_per_rank},
            {"dispatch_and_combine", memory.symmetric_memory_per_rank},
            {"intermediate_results", memory.working_memory_per_rank},
            {"kv_cache_per_1024_tokens", memory.kv_bytes_of_rank(kCacheExampleTokens)},
            {"state_per_request", memory.state_bytes}}},
          {"bytes_per_rank_of_stages", stages},
          {"bytes_sent_per_token",
           {{"rows_per_moe_layer", all.sent.rows},
            {"results_per_moe_layer", all.sent.results},
            {"between_per_moe_layer", all.sent.between},
            {"cache_per_layer", all.sent.cache},
            {"heads_per_layer", all.sent.heads},
            {"outputs_per_layer", all.sent.outputs},
            {"to_next_stage", all.sent.stage}}}};
}

Status run(const Options& options) {
  WIDEEP_TRY_ASSIGN(const parallel::ParallelConfig config, read_parallel_options(options.parallel));
  warn_of_batch_size(config);
  WIDEEP_TRY_ASSIGN(const Explained all, explain(options, config));
  const std::string text =
      options.json ? formats::json_text(explained_json(all), 2) + "\n" : explained_text(all);
  std::fputs(text.c_str(), stdout);
  return {};
}

}  // namespace

void add_parallel_explain_command(command_line::Command parallel, Status* status) {
  const command_line::Command command =
      parallel.add_command("explain",
                           "Show the part of every rank: its layers, heads and slots, the memory "
                           "it holds, the bytes it sends");
  auto options = std::make_shared<Options>();
  command.add_option("--model", options->model_dir, "Model directory; config.json is enough")
      .model()
      .required();
  add_parallel_options(command, &options->parallel);
  command.add_option(
      "--world", options->world,
      "Number of ranks that will be started: an error if the configuration needs another number");
  command.add_flag("--json", options->json, "Only JSON on stdout");
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
