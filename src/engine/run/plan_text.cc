// SPDX-License-Identifier: Apache-2.0
//
// One function for each line, or for a line that is there only if its feature is on; plan_text()
// puts them in order. Lines state what follows for answers ("the same bits", "changes answers"),
// because that is what someone who reads them has to know of a setting.
#include "run/plan_text.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/machine.h"
#include "ep/strategy.h"
#include "model/parts/perfect_choices.h"
#include "run/advice.h"
#include "run/prompt_places.h"
#include "schedule/page_pool.h"

namespace wideep::run {
namespace {

double mebibytes(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Online balancing and its memory beside the slots: a line for each pipeline stage with MoE layers.
std::string online_text(const Run& run) {
  std::string text;
  for (const OnlineParts& parts : run.online()) {
    if (!parts.balances()) continue;
    const online::BalancerOptions& balancer = parts.plan.balancer;
    text += fmt::format(
        "\nonline  balancing of up to {} layer{} at once; host pool {:.1f} MiB{}, spares per rank "
        "{} ({:.1f} MiB)",
        balancer.layers_in_flight, balancer.layers_in_flight == 1 ? "" : "s",
        mebibytes(parts.plan.pool_bytes()),
        parts.pool->in_huge_pages() ? " in reserved huge pages" : "", balancer.num_spares,
        mebibytes(parts.plan.spare_bytes_per_rank()));
  }
  if (run.plan().dispatch.borrowed_slots > 0) {
    text += "\nexact   rows of an iteration are shared out among the ranks of a node";
  }
  return text;
}

// Of a dense model nothing is said about slots, rows between ranks or their dispatch.
bool has_experts(const RunPlan& plan) { return plan.model.config.has_experts(); }

std::string memory_text(const RunPlan& plan, const MemoryPlan& memory) {
  const engine::SchedulerLimits& limits = plan.limits;
  const uint64_t states =
      memory.state_bytes * static_cast<uint64_t>(limits.state_slots + limits.draft_slots);
  const std::string slots =
      has_experts(plan) ? fmt::format("slots {:.1f} MiB, ", mebibytes(memory.slots_per_rank)) : "";
  return fmt::format(
             "per rank: {}symmetric memory {:.1f} MiB, KV cache ({}) up to {:.1f} MiB", slots,
             mebibytes(memory.symmetric_memory_per_rank), dtype_name(plan.cache),
             mebibytes(memory.kv_page_bytes * static_cast<uint64_t>(plan.limits.max_pages))) +
         (states == 0 ? "" : fmt::format(", states up to {:.1f} MiB", mebibytes(states)));
}

// One line, or with a pipeline one for each stage.
std::string stages_text(const RunPlan& plan) {
  const std::vector<MemoryPlan>& stages = plan.memory;
  if (stages.size() == 1) return "memory  " + memory_text(plan, stages[0]);
  std::string text = fmt::format(
      "stages  {} of {} rank{} each, up to {} micro-batches in flight; {} bytes a token between "
      "them",
      stages.size(), plan.mapping.stage_size(), plan.mapping.stage_size() == 1 ? "" : "s",
      plan.pipeline.micro_batches, plan.model.config.stream_width() * sizeof(float));
  for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
    const parallel::LayerRange layers = plan.layers_of_stage(stage);
    text += fmt::format("\nstage {} layers {} to {}; {}", stage, layers.first, layers.last - 1,
                        memory_text(plan, stages[static_cast<size_t>(stage)]));
  }
  return text;
}

// How rows travel between ranks.
std::string rows_text(const RunPlan& plan) {
  if (!has_experts(plan)) return "";
  const auto in = [&](kernels::RowFormat format) {
    return fmt::format("{} ({} bytes each)", kernels::row_format_name(format),
                       kernels::row_bytes(format, plan.model.config.expert_hidden_size()));
  };
  const bool reduced = plan.dispatch.combine == ep::Combine::kReduced;
  return fmt::format(
      "\nrows    dispatched in {}, returned in {}, {}", in(plan.moe.dispatch_format()),
      in(plan.moe.combine_format()),
      reduced ? "a sum for each token and rank: bits depend on EP size and placement"
              : "one for each token and expert: the same bits for every EP size and placement");
}

// Whether requests share pages of the KV cache.
std::string cache_text(const Run& run) {
  const RunPlan& plan = run.plan();
  const char* shared = "pages are not shared (enable_block_reuse: false)";
  if (plan.limits.reuse_pages) {
    shared = "requests with the same prefix share pages: the same bits as if computed again";
  } else if (run.options().parallel.kv_cache_config.reuses_blocks()) {
    shared = run.options().routed_experts
                 ? "pages are not shared: --enable-return-routed-experts needs the experts of "
                   "every token"
                 : "pages are not shared: a routing log needs the experts of every token";
  }
  const std::string places = prompt_places_text(run.options());
  return fmt::format("\ncache   {} pages of {} tokens per rank; {}", plan.limits.max_pages,
                     kernels::kPageTokens, shared) +
         (places.empty() ? "" : "\nprompts kept when they leave it: " + places);
}

// A line if the model keeps states beside the cache.
std::string states_text(const RunPlan& plan) {
  const engine::SchedulerLimits& limits = plan.limits;
  if (limits.state_slots == 0) return "";
  return fmt::format(
      "\nstates  {} per rank of {:.1f} MiB, one for each running request{}", limits.state_slots,
      mebibytes(fullest(plan.memory).state_bytes),
      limits.reuse_pages ? "; the others are snapshots at ends of shared pages" : "");
}

std::string drafters_text(const engine::SpeculationOptions& options) {
  using Method = engine::SpeculationOptions::Method;
  std::string text;
  if (options.predicts()) text = "the model's own prediction";
  if (options.predicts() && !options.suffix_threshold) return text;
  if (options.predicts())
    text += fmt::format(", or for matches of {} tokens ", *options.suffix_threshold);
  return text + fmt::format("{}, {:.1f} MiB per rank",
                            options.method == Method::kNgram ? "n-grams" : "suffix automata",
                            mebibytes(options.max_pool_bytes));
}

// A line if there is speculation.
std::string speculation_text(const RunPlan& plan) {
  const engine::SpeculationOptions& options = plan.speculation;
  if (!options.is_on()) return "";
  std::string text = fmt::format(
      "\ndrafts  up to {} tokens of a request in a step{}, from {}; {}", options.max_draft_len,
      options.is_adaptive ? ", as many as pay" : "", drafters_text(options),
      options.relaxed ? "relaxed acceptance changes answers" : "the same bits as without");
  if (plan.limits.draft_slots > 0) {
    text += fmt::format("; {} more states", plan.limits.draft_slots);
  }
  return text;
}

// Of a rank's cache.
int max_pages_of_request(const RunPlan& plan) {
  const int pages = engine::pages_for(plan.longest_sequence());
  return engine::max_pages_of_rank(pages, plan.mapping.sizes().cp, plan.limits.turn_pages);
}

// When requests are admitted.
std::string scheduler_text(const RunPlan& plan) {
  std::string text =
      plan.limits.policy == engine::CapacityPolicy::kMaxUtilization
          ? "\nrequests admitted when the cache has room for their present tokens; when it is "
            "full, "
            "the youngest pause (max_utilization)"
          : fmt::format(
                "\nrequests admitted when the cache has room for all that they may "
                "generate (guaranteed_no_evict): one without a limit reserves {} of {} "
                "pages",
                max_pages_of_request(plan), plan.limits.max_pages);
  const engine::PromptBalance& balance = plan.limits.balance;
  if (balance.enabled) {
    text += fmt::format(
        "; new prompts wait up to {} iterations until all ranks have some, and then {} for more",
        balance.timeout_iters, balance.batching_wait_iters);
  }
  return text;
}

// A line if a launcher has started the ranks.
std::string nodes_text(const Run& run) {
  if (run.options().started == nullptr) return "";
  const int num_nodes = run.plan().num_nodes();
  if (!has_experts(run.plan())) {
    return fmt::format("\nnodes   {}; each rank loads weights for itself", num_nodes);
  }
  return fmt::format(
      "\nnodes   {}; {}each rank loads weights other than experts for itself", num_nodes,
      num_nodes == 1 ? "" : "a token row crosses to a node at most once per layer; ");
}

// What the model's files say and the run does not use.
std::string notes_text(const Run& run) {
  std::string text;
  for (const std::string& note : run.inputs().notes()) text += "note    " + note + "\n";
  return text;
}

// A line if the run needs more memory than there is: it would end in the middle of loading.
std::string memory_warning(const Run& run) {
  if (run.plan().num_nodes() > 1) return "";
  const auto fit = judge_fit(run.plan().model, run.options(), base::read_machine());
  if (!fit.ok() || fit->fits() || !fit->advice) return "";
  return fmt::format("memory  {}; {}\n", fit->advice->finding, fit->advice->remedy);
}

std::string router_text(const RunPlan& plan) {
  if (!plan.moe.perfect_router) return "";
  const model::RoutingConfig& routing = plan.model.config.routing;
  const int ranks = plan.mapping.sizes().moe_ep;
  const model::Evenness evenness = model::PerfectChoices::evenness(routing, ranks);
  if (evenness.max_excess == 0.0) {
    return "\nrouter  perfect: ranks with equally many tokens choose all ranks equally often; the "
           "texts mean nothing";
  }
  return fmt::format(
      "\nrouter  perfect: groups of {} experts do not fit the {} of a rank: with T tokens on each "
      "rank an imbalance of at most {:.3g} / T ({:.3g} rows above the mean), none where {} divides "
      "T; the texts mean nothing",
      routing.num_experts / routing.num_groups, routing.num_experts / ranks,
      evenness.max_imbalance(1, routing.top_k), evenness.max_excess, evenness.period);
}

}  // namespace

std::string predictors_text(const model::ModelConfig& config) {
  const int layers = config.num_prediction_layers;
  if (layers == 0) return "";
  return layers == 1 ? " and one that predicts" : fmt::format(" and {} that predict", layers);
}

namespace {

std::string layers_text(const model::ModelConfig& config) {
  const std::string layers = fmt::format("{} layers{}", config.num_layers, predictors_text(config));
  if (!config.has_experts()) return layers + ", all dense";
  return fmt::format("{}, {} of them MoE with {} experts, top {}", layers, config.num_moe_layers(),
                     config.routing.num_experts, config.routing.top_k);
}

std::string slots_text(const RunPlan& plan) {
  const int all = plan.model.placement.num_slots;
  if (!has_experts(plan)) return "";
  return fmt::format("; {} slots per rank ({} in all, {} redundant)", plan.dispatch.slots_per_rank,
                     all, all - plan.model.config.routing.num_experts);
}

// How tokens reach experts, and their slices.
std::string experts_text(const Run& run) {
  const RunPlan& plan = run.plan();
  if (!has_experts(plan)) return "";
  const bool is_set = run.options().parallel.moe_config.dispatch_strategy != "AUTO";
  const int slices = plan.dispatch.num_slices;
  return fmt::format("\nexperts {}{}", ep::strategy_of(plan.dispatch).reason(),
                     is_set ? " (set by moe_config.dispatch_strategy)" : "") +
         (slices == 1
              ? ""
              : fmt::format("\nslices  each expert on {} ranks, by columns: the same bits as "
                            "of whole experts",
                            slices));
}

}  // namespace

std::string plan_text(const Run& run) {
  const RunPlan& plan = run.plan();
  const model::ModelConfig& config = plan.model.config;
  const int threads = plan.threads.threads_per_rank;
  return notes_text(run) + memory_warning(run) +
         fmt::format(
             "model   {}: {}; {}{} weights, kernels {}\n"
             "ranks   {} × {} thread{}{}\n"
             "{}",
             std::filesystem::path(run.options().model_dir).lexically_normal().string(),
             layers_text(config), !run.inputs().files ? "made-up " : "",
             plan.model.forms.format_names(), run.inputs().kernels->isa, plan.mapping.world_size(),
             threads, threads == 1 ? "" : "s", slots_text(plan), stages_text(plan)) +
         experts_text(run) +
         (plan.mapping.sizes().cp == 1
              ? ""
              : fmt::format("\ncontext {} ranks share each sequence, {} tokens in turns: the "
                            "same bits as of one rank",
                            plan.mapping.sizes().cp,
                            plan.limits.turn_pages * kernels::kPageTokens)) +
         cache_text(run) + states_text(plan) + speculation_text(plan) + scheduler_text(plan) +
         rows_text(plan) + nodes_text(run) + online_text(run) + router_text(plan);
}

}  // namespace wideep::run
