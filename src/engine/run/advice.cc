// SPDX-License-Identifier: Apache-2.0
//
// Facts of the machine are judged one by one, each by a function that returns advice or nothing.
//
// For a model that does not fit, remedies are not estimated but tried: each changes the options,
// and plan_run() says whether the result fits. The mildest single one that suffices is named; else
// all of them together, if they do. So the advice and the run that follows it cannot disagree.
#include "run/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/byte_size.h"
#include "base/try.h"
#include "kernels/attention.h"
#include "run/cache_memory.h"

namespace wideep::run {
namespace {

using base::byte_size;
using base::Machine;

// A fit that leaves less than this part of the memory is worth a warning.
constexpr double kComfortablyFull = 0.9;
// With fewer tokens, the fixed costs of an iteration outweigh its work.
constexpr int kFewestTokens = 32;

const char* plural(int count) { return count == 1 ? "" : "s"; }

// ---- the machine ----

std::optional<Advice> oversubscription(const Machine& machine, int num_ranks) {
  const int cores = machine.usable_cores();
  if (num_ranks <= cores) return {};
  return Advice{fmt::format("{} ranks share {} core{}: they take turns, so ranks beyond {} add "
                            "waiting and memory but no speed (the answers stay the same)",
                            num_ranks, cores, plural(cores), cores),
                fmt::format("use --ranks {} or fewer for speed", cores)};
}

// Only threads that are bound to cores have slots that stay near them (plan_threads).
std::optional<Advice> numa(const Machine& machine, int num_ranks) {
  const size_t nodes = machine.topology.numa_node_bytes.size();
  const int cores = machine.usable_cores();
  if (nodes < 2 || num_ranks > cores || cores % num_ranks == 0) return {};
  return Advice{fmt::format("memory is in {} parts (NUMA nodes), each near to some cores and far "
                            "from others; {} ranks do not divide {} cores, so threads are not "
                            "bound to cores and may run far from their rank's slots",
                            nodes, num_ranks, cores),
                "use a number of ranks that divides the cores"};
}

std::optional<Advice> reserved_huge_pages(const Machine& machine) {
  const uint64_t bytes = machine.huge_pages.reserved_bytes();
  if (bytes == 0) return {};
  return Advice{
      fmt::format("{} are reserved as huge pages (hugetlb), which only the host pool of online "
                  "balancing uses, if it fits",
                  byte_size(bytes)),
      "without online balancing, and if no other program needs them, release them: echo 0 | sudo "
      "tee /proc/sys/vm/nr_hugepages"};
}

std::optional<Advice> slow_kernels(std::string_view isa, std::string_view best_isa) {
  if (isa != best_isa) {
    return Advice{fmt::format("WIDEEP_ISA forces {}, although this processor has {}, which is "
                              "faster",
                              isa, best_isa),
                  "unset WIDEEP_ISA"};
  }
  if (isa != "ref") return {};
  return Advice{
      "this processor has none of the vector instructions that wideep is written for, so the plain "
      "loops run, many times slower",
      "use a processor with AVX2 or AVX-512 (x86-64); in a virtual machine, pass the host's "
      "processor through"};
}

// ---- the model ----

// A model and the options that a user wants to run it with.
struct WantedRun {
  ModelFacts model;
  RunOptions options;
  const Machine* machine;

  // Whether a plan exists that needs at most `usable` bytes.
  bool fits(uint64_t usable) const {
    const Result<RunPlan> plan = plan_run(model, options, *machine);
    return plan.ok() && plan->bytes_needed(options.parallel.kv_cache_config.max_tokens) <= usable;
  }
  int num_ranks() const { return options.parallel.sizes.tp; }  // of a stage
};

// One way to run the model in less memory.
struct Saving {
  std::string what_to_do;
  WantedRun run;
};

std::optional<Saving> no_host_cache(const WantedRun& run, uint64_t) {
  if (run.options.host_cache_bytes == 0) return std::nullopt;
  Saving saving{"no --host-cache-size", run};
  saving.run.options.host_cache_bytes = 0;
  return saving;
}

std::optional<Saving> fewer_tokens(const WantedRun& run, uint64_t usable) {
  const int now = scheduler_limits(run.options).max_num_tokens;
  Saving saving{"", run};
  int tokens = now;
  while (tokens / 2 >= kFewestTokens && !saving.run.fits(usable)) {
    tokens /= 2;
    saving.run.options.parallel.max_num_tokens = tokens;
  }
  if (tokens == now) return {};
  saving.what_to_do = fmt::format("--max-num-tokens {}", tokens);
  return saving;
}

std::optional<Saving> smaller_cache(const WantedRun& run, uint64_t /*usable*/) {
  if (!run.options.parallel.kv_cache_config.max_tokens) return {};
  Saving saving{"a smaller kv_cache_config.max_tokens", run};
  saving.run.options.parallel.kv_cache_config.max_tokens.reset();
  return saving;
}

// Replaces the placement by a default one of this size. Memory does not depend on which expert is
// where.
void place_anew(int num_slots, int ep_size, balance::ModelPlacement* placement) {
  placement->num_slots = num_slots;
  for (auto& [layer, each] : placement->layers) {
    const auto made = balance::default_placement(each.num_experts, ep_size, num_slots);
    if (made.ok()) each = *made;
  }
}

std::optional<Saving> no_redundancy(const WantedRun& run, uint64_t /*usable*/) {
  const int experts = run.model.config.routing.num_experts;
  const int ep_size = run.options.parallel.sizes.moe_ep;
  if (run.model.placement.num_slots <= experts || experts % ep_size != 0) return {};
  Saving saving{
      fmt::format("num_slots: {} in the load balancer's file (no redundant slots)", experts), run};
  place_anew(experts, ep_size, &saving.run.model.placement);
  return saving;
}

std::optional<Saving> fewer_ranks(const WantedRun& run, uint64_t usable) {
  if (run.options.parallel.sizes.moe_tp > 1)
    return {};  // --ranks does not apply: a file sets sizes
  Saving saving{"", run};
  parallel::ParallelSizes& sizes = saving.run.options.parallel.sizes;
  const int num_slots = run.model.placement.num_slots;
  for (int ranks = run.num_ranks() - 1; ranks >= 1; --ranks) {
    if (num_slots % ranks != 0) continue;
    sizes.tp = sizes.moe_ep = ranks;
    place_anew(num_slots, ranks, &saving.run.model.placement);
    saving.what_to_do = fmt::format("--ranks {}", ranks);
    if (saving.run.fits(usable)) break;
  }
  return sizes.tp == run.num_ranks() ? std::nullopt : std::optional(saving);
}

// The first of fewer bits a weight that makes the model fit, else the last.
std::optional<Saving> fewer_bits(const WantedRun& run, uint64_t usable) {
  using enum kernels::WeightFormat;
  const auto bytes_of_expert = [&](const model::ModelForms& forms) {
    return model::experts_shape(run.model.config, forms).record_bytes();
  };
  std::optional<Saving> saving;
  for (const kernels::WeightFormat format : {kBf16, kInt8, kInt4}) {
    const model::ModelForms forms = model::uniform_forms(run.model.config, format);
    if (bytes_of_expert(forms) >= bytes_of_expert(run.model.forms)) continue;
    saving = Saving{fmt::format("--dtype {}", kernels::weight_format_name(format)), run};
    saving->run.options.format = format;
    saving->run.model.forms = forms;
    if (saving->run.fits(usable)) break;
  }
  return saving;
}

using Step = std::optional<Saving> (*)(const WantedRun&, uint64_t usable);
constexpr std::array<Step, 6> kMildestFirst = {no_host_cache, fewer_tokens, smaller_cache,
                                               no_redundancy, fewer_ranks,  fewer_bits};

// The mildest single step that makes the model fit; else all steps together, if they do.
std::string how_to_fit(const WantedRun& run, uint64_t usable) {
  for (const Step step : kMildestFirst) {
    const std::optional<Saving> saving = step(run, usable);
    if (saving && saving->run.fits(usable)) return saving->what_to_do;
  }
  WantedRun smallest = run;
  std::vector<std::string> steps;
  for (const Step step : kMildestFirst) {
    const std::optional<Saving> saving = step(smallest, usable);
    if (!saving) continue;
    smallest = saving->run;
    steps.push_back(saving->what_to_do);
  }
  if (!smallest.fits(usable)) return "";
  return fmt::format("{}", fmt::join(steps, ", "));
}

std::string more_memory(const Machine& machine, uint64_t bytes_needed) {
  const auto& limit = machine.control_group;
  if (limit.memory_free_bytes && bytes_needed <= machine.free_memory_bytes) {
    return fmt::format("raise the control group's (container's) memory limit by {}",
                       byte_size(bytes_needed - *limit.memory_free_bytes));
  }
  if (bytes_needed <= machine.memory_bytes) {
    return fmt::format("end programs that hold memory: {} of {} are free",
                       byte_size(machine.free_memory_bytes), byte_size(machine.memory_bytes));
  }
  return fmt::format("use a machine with more than {} of free memory", byte_size(bytes_needed));
}

// Empty if no budget would do.
std::string experts_from_disk(const ModelFit& fit) {
  const uint64_t bytes = expert_memory_to_give(fit);
  if (bytes == 0) return "";
  return fmt::format(
      "; or with --packed-cache DIR --expert-memory {}, which keeps {:.0f} % of the experts in "
      "memory and reads the others from packed weights (wideep pack)",
      memory_to_give(bytes),
      100.0 * static_cast<double>(bytes) / static_cast<double>(fit.memory.slots_per_rank));
}

Advice too_large(const WantedRun& run, const Machine& machine, const ModelFit& fit) {
  const std::string with = how_to_fit(run, fit.bytes_usable);
  return {fmt::format("the model does not fit: it needs {}, and {} can be used",
                      byte_size(fit.bytes_needed), byte_size(fit.bytes_usable)),
          (with.empty() ? more_memory(machine, fit.bytes_needed) : "it fits with " + with) +
              experts_from_disk(fit)};
}

Advice barely(const ModelFit& fit) {
  return {fmt::format(
              "the model fills {:.0f} % of the memory: room for {} cached tokens in all",
              100.0 * static_cast<double>(fit.bytes_needed) / static_cast<double>(fit.bytes_usable),
              fit.kv_tokens),
          "serve few and short requests at a time, or lower --max-num-tokens or --ranks"};
}

}  // namespace

uint64_t ModelFit::bytes_of_experts() const {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : plan.memory) bytes += stage.all_ranks() * stage.slots_per_rank;
  return bytes;
}

uint64_t expert_memory_to_give(const ModelFit& fit) {
  const RunPlan& plan = fit.plan;
  const parallel::ParallelSizes& sizes = plan.mapping.sizes();
  // Layouts in which a rank that cannot read an expert ends requests of its own only.
  const bool can_read = plan.model.config.has_experts() && !plan.joint && !plan.balances_online() &&
                        sizes.pp == 1 && sizes.cp == 1 && sizes.moe_tp == 1;
  const auto usable =
      static_cast<uint64_t>(kComfortablyFull * static_cast<double>(fit.bytes_usable));
  const uint64_t rest = fit.bytes_needed - fit.bytes_of_experts();
  if (!can_read || rest >= usable) return 0;
  const uint64_t bytes = (usable - rest) / fit.memory.all_ranks();
  // A token's experts of a layer at least.
  const uint64_t fewest = static_cast<uint64_t>(plan.model.config.routing.top_k) *
                          model::experts_shape(plan.model.config, plan.model.forms).record_bytes();
  return bytes >= fewest ? std::min(bytes, fit.memory.slots_per_rank) : 0;
}

std::vector<Advice> machine_advice(const Machine& machine, int num_ranks, std::string_view isa,
                                   std::string_view best_isa) {
  std::vector<Advice> all;
  for (auto& advice : {slow_kernels(isa, best_isa), oversubscription(machine, num_ranks),
                       numa(machine, num_ranks), reserved_huge_pages(machine)}) {
    if (advice) all.push_back(*advice);
  }
  return all;
}

Result<ModelFit> judge_fit(const ModelFacts& model, const RunOptions& wanted,
                           const base::Machine& machine) {
  RunOptions options = wanted;
  options.cache_pages = 1;  // without kv_cache_config.max_tokens: the smallest cache
  WIDEEP_TRY_ASSIGN(RunPlan plan, plan_run(model, options, machine));
  ModelFit fit{.plan = std::move(plan), .memory = {}, .advice = {}};
  const std::vector<MemoryPlan>& stages = fit.plan.memory;
  fit.memory = fullest(stages);
  fit.bytes_needed = fit.plan.bytes_needed(options.parallel.kv_cache_config.max_tokens);
  fit.bytes_usable = machine.usable_memory_bytes();
  const uint64_t other =
      bytes_without_cache(stages) + fewest_state_bytes(stages) + fit.plan.host_cache;
  if (fit.bytes_usable > other) {
    // A token's keys and values are spread over the ranks that share batches (by heads) and over
    // the stages (by layers): a page of the cache is the sum of their pages.
    const uint64_t sharers = fit.plan.joint ? static_cast<uint64_t>(options.parallel.sizes.tp) : 1;
    uint64_t page = 0;
    for (const MemoryPlan& stage : stages) page += stage.kv_page_bytes * sharers;
    // Without a layer of attention there is no cache to fill.
    if (page > 0) fit.kv_tokens = (fit.bytes_usable - other) / page * kernels::kPageTokens;
  }
  if (!fit.fits()) {
    fit.advice = too_large({model, options, &machine}, machine, fit);
  } else if (static_cast<double>(fit.bytes_needed) >
             kComfortablyFull * static_cast<double>(fit.bytes_usable)) {
    fit.advice = barely(fit);
  }
  return fit;
}

}  // namespace wideep::run
