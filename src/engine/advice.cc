// SPDX-License-Identifier: Apache-2.0
#include "engine/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/byte_size.h"
#include "kernels/attention.h"

namespace wideep::engine {
namespace {

using base::byte_size;
using base::Machine;

// A fit that leaves less than this part of the memory is worth a warning.
constexpr double kComfortablyFull = 0.9;
// Below, an iteration is too small to be worth its fixed costs.
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

// One way to run the model in less memory.
struct Saving {
  std::string what_to_do;
  ModelRun run;
};

std::optional<Saving> fewer_tokens(const ModelRun& run, uint64_t usable) {
  Saving saving{"", run};
  while (saving.run.max_num_tokens / 2 >= kFewestTokens && saving.run.bytes_needed() > usable) {
    saving.run.max_num_tokens /= 2;
  }
  if (saving.run.max_num_tokens == run.max_num_tokens) return {};
  saving.what_to_do = fmt::format("--max-num-tokens {}", saving.run.max_num_tokens);
  return saving;
}

std::optional<Saving> smaller_cache(const ModelRun& run, uint64_t /*usable*/) {
  if (!run.kv_tokens_per_rank) return {};
  Saving saving{"a smaller kv_cache_config.max_tokens", run};
  saving.run.kv_tokens_per_rank.reset();
  return saving;
}

std::optional<Saving> no_redundancy(const ModelRun& run, uint64_t /*usable*/) {
  const int experts = run.config.routing.num_experts;
  if (run.num_slots <= experts || experts % (run.num_ranks / run.num_slices) != 0) return {};
  Saving saving{
      fmt::format("num_slots: {} in the load balancer's file (no redundant slots)", experts), run};
  saving.run.num_slots = experts;
  return saving;
}

std::optional<Saving> fewer_ranks(const ModelRun& run, uint64_t usable) {
  if (run.num_slices > 1) return {};  // of sizes that a file gives
  Saving saving{"", run};
  for (int ranks = run.num_ranks - 1; ranks >= 1; --ranks) {
    if (run.num_slots % ranks != 0) continue;
    saving.run.num_ranks = ranks;
    saving.what_to_do = fmt::format("--ranks {}", ranks);
    if (saving.run.bytes_needed() <= usable) break;
  }
  return saving.run.num_ranks == run.num_ranks ? std::nullopt : std::optional(saving);
}

std::optional<Saving> half_precision(const ModelRun& run, uint64_t /*usable*/) {
  if (run.format != kernels::WeightFormat::kF32) return {};
  Saving saving{"--dtype bf16", run};
  saving.run.format = kernels::WeightFormat::kBf16;
  return saving;
}

using Step = std::optional<Saving> (*)(const ModelRun&, uint64_t usable);
constexpr std::array<Step, 5> kMildestFirst = {fewer_tokens, smaller_cache, no_redundancy,
                                               fewer_ranks, half_precision};

// The mildest single step that makes the model fit; else all steps together, if they do.
std::string how_to_fit(const ModelRun& run, uint64_t usable) {
  for (const Step step : kMildestFirst) {
    const std::optional<Saving> saving = step(run, usable);
    if (saving && saving->run.bytes_needed() <= usable) return saving->what_to_do;
  }
  ModelRun smallest = run;
  std::vector<std::string> steps;
  for (const Step step : kMildestFirst) {
    const std::optional<Saving> saving = step(smallest, usable);
    if (!saving) continue;
    smallest = saving->run;
    steps.push_back(saving->what_to_do);
  }
  if (smallest.bytes_needed() > usable) return "";
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

Advice too_large(const ModelRun& run, const Machine& machine, uint64_t bytes_needed) {
  const uint64_t usable = machine.usable_memory_bytes();
  const std::string with = how_to_fit(run, usable);
  return {fmt::format("the model does not fit: it needs {}, and {} can be used",
                      byte_size(bytes_needed), byte_size(usable)),
          with.empty() ? more_memory(machine, bytes_needed) : "it fits with " + with};
}

Advice barely(const ModelFit& fit) {
  return {fmt::format(
              "the model fills {:.0f} % of the memory: room for {} cached tokens in all",
              100.0 * static_cast<double>(fit.bytes_needed) / static_cast<double>(fit.bytes_usable),
              fit.kv_tokens),
          "serve few and short requests at a time, or lower --max-num-tokens or --ranks"};
}

}  // namespace

std::vector<Advice> machine_advice(const Machine& machine, int num_ranks, std::string_view isa,
                                   std::string_view best_isa) {
  std::vector<Advice> all;
  for (auto& advice : {slow_kernels(isa, best_isa), oversubscription(machine, num_ranks),
                       numa(machine, num_ranks), reserved_huge_pages(machine)}) {
    if (advice) all.push_back(*advice);
  }
  return all;
}

std::string ModelRun::format_names() const {
  return stored_forms ? stored_forms->format_names()
                      : std::string(kernels::weight_format_name(format));
}

ep::DispatchShape ModelRun::dispatch_shape() const {
  return engine::dispatch_shape(
      config, num_ranks, num_slots, max_num_tokens,
      {.row_dtype = kernels::row_dtype(format), .dispatch = dispatch, .combine = combine},
      moe_max_num_tokens, combine_rows, num_slices);
}

std::vector<MemoryPlan> ModelRun::stages() const {
  return plan_stages(config, dispatch_shape(),
                     stored_forms ? *stored_forms : model::uniform_forms(config, format),
                     cache_dtype(kv_cache_dtype, format), joint, pipeline, num_groups, turn_pages);
}

uint64_t ModelRun::bytes_needed() const {
  uint64_t bytes = 0;
  for (const MemoryPlan& stage : stages()) {
    bytes += stage.bytes_without_cache() +
             stage.all_ranks() * stage.kv_bytes(kv_tokens_per_rank.value_or(1));
  }
  return bytes;
}

ModelFit judge_fit(const ModelRun& run, const Machine& machine) {
  const std::vector<MemoryPlan> stages = run.stages();
  ModelFit fit{.plan = fullest(stages),
               .bytes_needed = run.bytes_needed(),
               .bytes_usable = machine.usable_memory_bytes()};
  const uint64_t other = bytes_without_cache(stages);
  if (fit.bytes_usable > other) {
    // Of ranks that share batches each keeps its heads of every token, and each stage its layers.
    uint64_t page = 0;
    for (const MemoryPlan& stage : stages) {
      page += stage.kv_page_bytes * static_cast<uint64_t>(run.joint ? run.num_ranks : 1);
    }
    fit.kv_tokens = (fit.bytes_usable - other) / page * kernels::kPageTokens;
  }
  if (!fit.fits()) {
    fit.advice = too_large(run, machine, fit.bytes_needed);
  } else if (static_cast<double>(fit.bytes_needed) >
             kComfortablyFull * static_cast<double>(fit.bytes_usable)) {
    fit.advice = barely(fit);
  }
  return fit;
}

}  // namespace wideep::engine
