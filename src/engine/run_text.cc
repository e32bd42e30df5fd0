// SPDX-License-Identifier: Apache-2.0
#include "engine/run_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "engine/scheduler_limits.h"
#include "ep/strategy.h"

namespace wideep::engine {
namespace {

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// What online balancing does and costs beside the slots: a line for each pipeline stage that has
// something to balance.
std::string online_text(const RunSetup& setup) {
  std::string text;
  for (const OnlineParts& parts : setup.online) {
    if (!parts.balances()) continue;
    text += fmt::format(
        "\nonline  balancing of up to {} layer{} at once; host pool {:.1f} MiB{}, spares per rank "
        "{} ({:.1f} MiB)",
        parts.balancer.layers_in_flight, parts.balancer.layers_in_flight == 1 ? "" : "s",
        mebibytes(parts.pool->total_bytes()),
        parts.pool->in_huge_pages() ? " in reserved huge pages" : "", parts.balancer.num_spares,
        mebibytes(parts.spare_bytes_per_rank()));
  }
  return text;
}

std::string memory_text(const RunSetup& setup, const MemoryPlan& plan) {
  return fmt::format(
      "per rank: slots {:.1f} MiB, symmetric memory {:.1f} MiB, KV cache ({}) up to {:.1f} MiB",
      mebibytes(plan.slots_per_rank), mebibytes(plan.symmetric_memory_per_rank),
      dtype_name(setup.options.cache_dtype()),
      mebibytes(plan.kv_page_bytes * static_cast<uint64_t>(setup.limits.max_pages)));
}

// A line for each stage of a pipeline.
std::string stages_text(const RunSetup& setup) {
  const std::vector<MemoryPlan> plans = memory_of_stages(setup);
  if (plans.size() == 1) return "memory  " + memory_text(setup, plans[0]);
  std::string text = fmt::format(
      "stages  {} of {} rank{} each, up to {} micro-batches under way; {} bytes a token between "
      "them",
      plans.size(), setup.mapping.stage_size(), setup.mapping.stage_size() == 1 ? "" : "s",
      setup.pipeline.micro_batches, setup.config.hidden_size * sizeof(float));
  for (int stage = 0; stage < static_cast<int>(plans.size()); ++stage) {
    const parallel::LayerRange layers = setup.mapping.pp_layers(stage, setup.config.num_layers);
    text += fmt::format("\nstage {} layers {} to {}; {}", stage, layers.first, layers.last - 1,
                        memory_text(setup, plans[stage]));
  }
  return text;
}

// How rows travel between ranks.
std::string rows_text(const RunSetup& setup) {
  const auto in = [&](kernels::RowFormat format) {
    return fmt::format("{} ({} bytes each)", kernels::row_format_name(format),
                       kernels::row_bytes(format, setup.config.hidden_size));
  };
  const bool reduced = setup.dispatch.combine == ep::Combine::kReduced;
  return fmt::format(
      "\nrows    dispatched in {}, returned in {}, {}", in(setup.moe.dispatch_format()),
      in(setup.moe.combine_format()),
      reduced ? "a sum for each token and rank: bits depend on EP size and placement"
              : "one for each token and expert: the same bits for every EP size and placement");
}

// Who may have which pages of the cache.
std::string cache_text(const RunSetup& setup) {
  const char* shared = "pages are not shared (enable_block_reuse: false)";
  if (setup.limits.reuse_pages) {
    shared = "requests that begin alike share pages: the same bits as if computed again";
  } else if (setup.options.parallel.kv_cache_config.enable_block_reuse) {
    shared = "pages are not shared: a routing log has the experts of every token";
  }
  return fmt::format("\ncache   {} pages of {} tokens per rank; {}", setup.limits.max_pages,
                     kernels::kPageTokens, shared);
}

// When requests get their turn.
std::string scheduler_text(const RunSetup& setup) {
  std::string text =
      setup.limits.policy == CapacityPolicy::kMaxUtilization
          ? "\nrequests admitted when there is room for what there is of them; the youngest pause "
            "when there is none (max_utilization)"
          : "\nrequests admitted when there is room for all they may generate "
            "(guaranteed_no_evict)";
  const PromptBalance& balance = setup.limits.balance;
  if (balance.enabled) {
    text += fmt::format(
        "; new prompts wait up to {} iterations until all ranks have some, and then {} for more",
        balance.timeout_iters, balance.batching_wait_iters);
  }
  return text;
}

// Of ranks that a launcher has started: a line, or nothing.
std::string nodes_text(const RunSetup& setup) {
  if (setup.options.started == nullptr) return "";
  const int num_nodes = setup.options.started->nodes().num_nodes();
  return fmt::format(
      "\nnodes   {}; {}each rank loads weights other than experts for itself", num_nodes,
      num_nodes == 1 ? "" : "a token row crosses to a node at most once per layer; ");
}

}  // namespace

std::string plan_text(const RunSetup& setup) {
  const model::ModelConfig& config = setup.config;
  const int slices = setup.dispatch.num_slices;
  return fmt::format(
             "model   {}: {} layers, {} of them MoE with {} experts, top {}; {}{} weights, kernels "
             "{}\n"
             "ranks   {} × {} thread{}; {} slots per rank ({} in all, {} redundant)\n"
             "{}\n"
             "experts {}",
             std::filesystem::path(setup.options.model_dir).lexically_normal().string(),
             config.num_layers, config.num_moe_layers(), config.routing.num_experts,
             config.routing.top_k, setup.checkpoint == nullptr ? "made-up " : "",
             setup.forms.format_names(), setup.kernels.isa, setup.mapping.world_size(),
             setup.threads.threads_per_rank, setup.threads.threads_per_rank == 1 ? "" : "s",
             setup.dispatch.slots_per_rank, setup.placement.num_slots,
             setup.placement.num_slots - config.routing.num_experts, stages_text(setup),
             ep::choose_strategy(setup.dispatch).reason()) +
         (slices == 1
              ? ""
              : fmt::format("\nslices  each expert on {} ranks, by columns: the same bits as "
                            "of whole experts",
                            slices)) +
         (setup.mapping.sizes().cp == 1
              ? ""
              : fmt::format("\ncontext {} ranks share each sequence, {} tokens in turns: the "
                            "same bits as of one rank",
                            setup.mapping.sizes().cp,
                            setup.limits.turn_pages * kernels::kPageTokens)) +
         cache_text(setup) + scheduler_text(setup) + rows_text(setup) + nodes_text(setup) +
         online_text(setup) +
         (setup.moe.perfect_router
              ? "\nrouter  perfect: tokens go to all ranks evenly; the texts mean nothing"
              : "");
}

uint64_t bytes_to_load(const RunSetup& setup) {
  constexpr std::string_view kExperts = ".mlp.experts.";
  const std::string mtp = fmt::format("model.layers.{}.", setup.config.num_layers);
  if (setup.checkpoint == nullptr) return 0;
  uint64_t bytes = 0;
  std::map<std::string, uint64_t, std::less<>> of_expert;  // by "model.layers.0.mlp.experts.0"
  for (const std::string& name : setup.checkpoint->names()) {
    const size_t at = name.find(kExperts);
    if (at != name.npos) {
      const size_t end = std::min(name.find('.', at + kExperts.size()), name.size());
      of_expert[name.substr(0, end)] += setup.checkpoint->tensor_bytes(name);
    } else if (!name.starts_with(mtp)) {
      bytes += setup.checkpoint->tensor_bytes(name);
    }
  }
  for (const auto& [layer, placement] : setup.placement.layers) {
    std::vector<int32_t> experts = placement.slot_to_expert;
    if (!setup.online.empty()) {
      std::sort(experts.begin(), experts.end());
      experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
    }
    for (const int32_t expert : experts) {
      bytes += of_expert[fmt::format("model.layers.{}.mlp.experts.{}", layer, expert)];
    }
  }
  return bytes;
}

}  // namespace wideep::engine
