// SPDX-License-Identifier: Apache-2.0
//
// Text and JSON from one DoctorReport, a function for each line or block. The lines of a model are
// there only with one, those of recovery if it was asked for. Long sentences are wrapped to a fixed
// width, because reports are pasted into issues.
#include "doctor_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "base/byte_size.h"
#include "base/nvidia_profiler.h"
#include "run/plan_text.h"
#include "server/limits.h"
#include "server/service.h"

namespace wideep::tools {
namespace {

using base::byte_size;
using base::Machine;
using nlohmann::ordered_json;

constexpr uint64_t kCacheExampleTokens = 1024;

std::string line(std::string_view label, const std::string& text) {
  return fmt::format("  {:<17} {}\n", label, text);
}

// The words of "<head><text>" in lines of at most kColumns, the later ones indented like the text.
std::string wrapped(const std::string& head, const std::string& text) {
  constexpr size_t kColumns = 100;
  std::string lines = head;
  size_t column = head.size();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > head.size() && column + 1 + word.size() > kColumns) {
      lines += "\n" + std::string(head.size(), ' ');
      column = head.size();
    }
    if (column > head.size()) lines += ' ', ++column;
    lines += word;
    column += word.size();
  }
  return lines + "\n";
}

std::string count(uint64_t number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing, number == 1 ? "" : "s");
}

// ---- machine ----

std::string cores_text(const Machine& machine) {
  const size_t cores = machine.topology.cores.size();
  std::string text =
      fmt::format("{}, {} of them usable", count(cores, "core"), machine.usable_cores());
  if (machine.num_processors > static_cast<int>(cores)) {
    text += fmt::format(" ({} hardware threads)", machine.num_processors);
  }
  if (machine.control_group.cpus) {
    text += fmt::format("; limit of the container: {:.3g}", *machine.control_group.cpus);
  }
  return text;
}

std::string cache_text(const base::Topology& topology) {
  std::vector<std::string> parts;
  for (const auto& cache : topology.caches) {
    parts.push_back(fmt::format("L{} {} per {}", cache.level, byte_size(cache.bytes),
                                cache.num_cores <= 1 ? "core" : count(cache.num_cores, "core")));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string memory_text(const Machine& machine) {
  std::string text = fmt::format("{}, {} of it free", byte_size(machine.memory_bytes),
                                 byte_size(machine.free_memory_bytes));
  const size_t nodes = machine.topology.numa_node_bytes.size();
  if (nodes > 1) text += fmt::format("; in {} parts (NUMA nodes)", nodes);
  return text;
}

std::string memory_limit_text(const base::ControlGroup& group) {
  if (!group.memory_limit_bytes) return "none";
  return fmt::format("{} by the container (control group), {} of it free",
                     byte_size(*group.memory_limit_bytes), byte_size(*group.memory_free_bytes));
}

// Weights and slots use transparent huge pages (madvise); the host pool of online balancing uses
// reserved ones if there are enough.
std::string huge_pages_text(const base::HugePages& pages) {
  const std::string mode = pages.transparent.empty() ? "not in this kernel" : pages.transparent;
  const bool granted = pages.transparent == "always" || pages.transparent == "madvise";
  const char* effect = granted ? "weights and slots get them" : "wideep gets none";
  const std::string reserved =
      pages.reserved.empty() ? "none" : byte_size(pages.reserved_bytes()) + ", for the host pool";
  return fmt::format("transparent: {} ({}); reserved: {}", mode, effect, reserved);
}

std::string kernel_lines(const kernels::Kernels* chosen) {
  std::string lines;
  for (const kernels::Kernels* table : kernels::all_kernels()) {
    const char* state = table == chosen ? "yes, chosen" : table->supported() ? "yes" : "no";
    lines += line(lines.empty() ? "instruction sets" : "",
                  fmt::format("{:<7} {:<12} {}", table->isa, state, table->description));
  }
  return lines;
}

std::string profilers_text() {
  const std::string toolkit = base::cuda_toolkit_version();
  if (toolkit.empty()) return "not supported: built without CUDA (cmake -DWIDEEP_CUDA=ON)";
  return fmt::format("NVTX marks iterations, CUDA {} starts and stops the profiler at ranges",
                     toolkit);
}

std::string machine_lines(const DoctorReport& report) {
  const Machine& machine = report.machine;
  const std::string name = machine.processor.empty() ? "(unnamed)" : machine.processor;
  return "Machine\n" + line("processor", name) + line("cores", cores_text(machine)) +
         line("caches", cache_text(machine.topology)) + kernel_lines(report.chosen_kernels) +
         line("memory", memory_text(machine)) +
         line("memory limit", memory_limit_text(machine.control_group)) +
         line("huge pages", huge_pages_text(machine.huge_pages)) +
         line("/dev/shm", fmt::format("{}; wideep does not need it: its shared memory has no files",
                                      byte_size(machine.dev_shm_bytes))) +
         line("NVIDIA profilers", profilers_text()) +
         line("ranks", fmt::format("{} on {}", report.num_ranks,
                                   count(machine.usable_cores(), "usable core")));
}

// ---- model ----

std::string size_line(std::string_view label, const std::string& per_rank, uint64_t all,
                      std::string_view what) {
  const std::string row =
      fmt::format("  {:<17} {:>12} {:>12}   {}", label, per_rank, byte_size(all), what);
  return row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
}

std::string shape_text(const run::RunPlan& plan) {
  const model::ModelConfig& config = plan.model.config;
  const model::RoutingConfig& routing = config.routing;
  const int num_moe = config.num_moe_layers();
  const std::string which = num_moe == config.num_all_layers() ? "each" : std::to_string(num_moe);
  const int stages = plan.pipeline.num_stages;
  const std::string layers =
      fmt::format("{} layers{}{}", config.num_layers, run::predictors_text(config),
                  stages == 1 ? "" : fmt::format(" in {} pipeline stages", stages));
  if (!config.has_experts()) {
    return fmt::format("{}, all dense; {} numbers", layers, plan.model.forms.format_names());
  }
  return fmt::format("{}, {} with {} experts of which a token uses {}; {} numbers", layers, which,
                     routing.num_experts, routing.top_k, plan.model.forms.format_names());
}

std::string slots_text(const run::ModelFacts& model) {
  const int num_slots = model.placement.num_slots;
  const int extra = num_slots - model.config.routing.num_experts;
  const std::string all = fmt::format("{} slots per layer", num_slots);
  return extra == 0 ? all : fmt::format("{}, {} of them for replicas", all, extra);
}

std::string memory_lines(const run::ModelFit& fit) {
  const run::MemoryPlan& memory = fit.memory;
  const auto each = [&](std::string_view label, uint64_t run::MemoryPlan::* bytes,
                        std::string_view what) {
    uint64_t all = 0;
    for (const run::MemoryPlan& stage : fit.plan.memory) {
      all += stage.all_ranks() * stage.*bytes;
    }
    return size_line(label, byte_size(memory.*bytes), all, what);
  };
  const bool experts = fit.plan.model.config.has_experts();
  return size_line("dense weights", "shared", memory.dense_weights,
                   experts ? "all but the experts; one copy" : "one copy") +
         (experts ? each("experts", &run::MemoryPlan::slots_per_rank, slots_text(fit.plan.model))
                  : "") +
         each("messages", &run::MemoryPlan::symmetric_memory_per_rank,
              "symmetric memory that all ranks see") +
         each("working memory", &run::MemoryPlan::working_memory_per_rank,
              fmt::format("about; for {} tokens at a time", fit.plan.dispatch.max_tokens)) +
         (fit.plan.host_cache == 0 ? ""
                                   : size_line("host cache", "shared", fit.plan.host_cache,
                                               "prompts that leave the KV caches")) +
         size_line("needed", "", fit.bytes_needed, "with the smallest KV cache") +
         size_line("usable", "", fit.bytes_usable, fit.fits() ? "it fits" : "it does not fit");
}

std::string cache_text(const run::ModelFit& fit) {
  const std::string each = byte_size(fit.memory.kv_bytes(kCacheExampleTokens));
  const std::string text = fmt::format("{} per {} tokens of context", each, kCacheExampleTokens);
  return fit.fits() ? fmt::format("{}; room for {} tokens", text, fit.kv_tokens) : text;
}

// A line if the model keeps states beside the cache.
std::string state_line(const run::ModelFit& fit) {
  if (fit.memory.state_bytes == 0) return "";
  return line("states", fmt::format("{} per request and rank, for a context of any length",
                                    byte_size(fit.memory.state_bytes)));
}

// What the files say and a run does not use.
std::string note_lines(const model::ModelConfig& config) {
  std::string lines;
  for (const std::string& note : config.notes) {
    lines += wrapped(fmt::format("  {:<17} ", "note"), note);
  }
  return lines;
}

// Lines if experts would be read from disk.
std::string reading_lines(const std::optional<ExpertReading>& reading) {
  if (!reading) return "";
  return wrapped(fmt::format("  {:<17} ", "from disk"), reading->text()) +
         wrapped(fmt::format("  {:<17} ", ""), reading->sources());
}

std::string model_lines(const DoctorReport& report) {
  const std::string ranks =
      report.num_ranks == 1 ? "in all" : fmt::format("all {}", report.num_ranks);
  return fmt::format("\nModel {}\n", report.model_dir) +
         (report.gguf ? wrapped(fmt::format("  {:<17} ", "files"), report.gguf->text()) : "") +
         line("shape", shape_text(report.fit->plan)) +
         fmt::format("  {:<17} {:>12} {:>12}\n", "memory", "each rank", ranks) +
         memory_lines(*report.fit) + line("KV cache", cache_text(*report.fit)) +
         state_line(*report.fit) + reading_lines(report.reading) +
         note_lines(report.fit->plan.model.config);
}

// ---- prompts ----

std::string place_text(const PromptPlace& place) {
  std::string text = place.where.empty() ? "memory of this node" : place.where;
  if (place.bytes) text += fmt::format(", up to {}", byte_size(*place.bytes));
  if (place.free_bytes) text += fmt::format("; {} free there", byte_size(*place.free_bytes));
  return place.trouble || place.bytes ? text : text + "; it answers";
}

std::string place_lines(const std::vector<PromptPlace>& places) {
  if (places.empty()) return "";
  std::string lines = "\nPrompts that leave the KV cache\n";
  for (const PromptPlace& place : places) {
    lines += wrapped(fmt::format("  {:<17} ", place.label), place_text(place));
  }
  return lines;
}

// ---- packed weights ----

const char* state_name(PackedEntry::State state) {
  switch (state) {
    case PackedEntry::State::kFinished:
      return "finished";
    case PackedEntry::State::kUnfinished:
      return "unfinished";
    case PackedEntry::State::kBeingWritten:
      return "being written";
    case PackedEntry::State::kUnusable:
      return "unusable";
  }
  return "";
}

std::string packed_text(const PackedEntry& entry, bool is_verified) {
  switch (entry.state) {
    case PackedEntry::State::kFinished:
      return fmt::format("{}, {} parts{}; {}", byte_size(entry.bytes), entry.num_parts,
                         is_verified ? ", all as their hashes say" : "", entry.record_class);
    case PackedEntry::State::kUnfinished:
      return fmt::format("{}, not finished: the next start goes on", byte_size(entry.bytes));
    case PackedEntry::State::kBeingWritten:
      return fmt::format("{} so far, being written by another process", byte_size(entry.bytes));
    case PackedEntry::State::kUnusable:
      return entry.trouble;
  }
  return "";
}

std::string packed_lines(const PackedCache& cache) {
  std::string lines =
      fmt::format("\nPacked weights in {}{}\n", cache.directory,
                  cache.free_bytes ? fmt::format(", {} free", byte_size(*cache.free_bytes)) : "");
  if (cache.entries.empty()) lines += "  none\n";
  for (const PackedEntry& entry : cache.entries) {
    lines += fmt::format("  {}\n", entry.name);
    lines += wrapped("    ", packed_text(entry, cache.is_verified));
  }
  return lines;
}

// ---- the loss of a rank ----

std::string node_text(const run::RecoveryForecast& forecast) {
  if (forecast.num_nodes == 1) {
    return "there is one: its loss ends the service (serve --nnodes has several)";
  }
  if (!forecast.is_elastic) {
    return "all but the first: the others wait until it is back; the first serves, and must be "
           "started again";
  }
  return fmt::format(
      "all but the first: {} ranks go on, with {} slots each ({} in all), and bring up to {} "
      "experts of a layer; the first serves, and must be started again",
      forecast.ranks_after_node, forecast.slots_after_node,
      byte_size(forecast.slot_bytes_after_node), forecast.max_experts_lost_with_node);
}

std::string recovery_lines(const run::RecoveryForecast& forecast, bool is_packed) {
  std::string text = "\nRecovery, should a rank die (docs/faults.md)\n";
  text += line("any one rank",
               forecast.num_ranks == 1 ? "survived: it is started again, with its requests"
               : forecast.is_elastic
                   ? "survived: the others go on with its requests, and it is started again"
                   : "survived: all wait until it is back, then begin again with their requests");
  text += wrapped(fmt::format("  {:<17} ", "any one node"), node_text(forecast));
  if (forecast.num_experts == 0) return text;  // of a dense model nothing but requests is lost
  const int lost = forecast.max_lost_experts;
  text += line("experts lost",
               lost == 0 ? "none: each has a replica on another rank"
                         : fmt::format("up to {} of {} in a layer, {} in all layers", lost,
                                       forecast.num_experts, byte_size(forecast.lost_bytes)));
  text += line("they come from", forecast.has_pool ? "the host pool, as copies"
                                 : is_packed       ? "the packed file (--packed-cache)"
                                                   : "the checkpoint, read and packed again");
  if (!forecast.has_pool && forecast.num_ranks > 1) {
    text += line("a host pool", fmt::format("online balancing (layer_updates_per_iter) has one: {}",
                                            byte_size(forecast.pool_bytes)));
  }
  if (forecast.is_elastic && forecast.num_ranks > 1) {
    text += line("slots", fmt::format("{} per rank and layer, then {}; {} of all ranks, then {}",
                                      forecast.slots_before, forecast.slots_after,
                                      byte_size(forecast.slot_bytes_before),
                                      byte_size(forecast.slot_bytes_after)));
  }
  if (lost > 0 && forecast.slots_without_loss > 0) {
    text += line("to lose none",
                 fmt::format("num_slots: {}, placed on two ranks each; {} more",
                             forecast.slots_without_loss, byte_size(forecast.replica_bytes)));
  }
  return text;
}

// ---- all ----

std::string advice_lines(const std::vector<run::Advice>& warnings) {
  std::string lines;
  for (const run::Advice& advice : warnings) {
    lines += wrapped("warning: ", advice.finding) + wrapped("  advice: ", advice.remedy);
  }
  return lines;
}

// What clients of `wideep serve` can have of it, as it is without options.
std::vector<server::Limit> serve_limits() {
  return server::limits({}, {}, server::ServiceOptions().max_queue);
}

std::string limit_lines() {
  std::string lines = "\nLimits of wideep serve (docs/serve.md)\n";
  for (const server::Limit& each : serve_limits()) {
    const std::string option = each.option.empty() ? "" : fmt::format(" ({})", each.option);
    lines += wrapped("  ", fmt::format("{}: {}{}", each.of, each.max, option));
  }
  return lines;
}

ordered_json limits_json() {
  ordered_json list = ordered_json::array();
  for (const server::Limit& each : serve_limits()) {
    list.push_back(
        {{"of", each.of}, {"most", each.max}, {"option", each.option}, {"beyond", each.beyond}});
  }
  return list;
}

std::string verdict(const DoctorReport& report) {
  if (!report.outcome.ok()) return "";  // main() prints the error
  return report.warnings.empty() ? "all fine\n"
                                 : count(report.warnings.size(), "warning") + ", no error\n";
}

// ---- JSON ----

template <typename T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

std::optional<std::string> cuda_toolkit() {
  const std::string version = base::cuda_toolkit_version();
  return version.empty() ? std::nullopt : std::optional(version);
}

ordered_json kernels_json(const kernels::Kernels* chosen) {
  ordered_json list = ordered_json::array();
  for (const kernels::Kernels* table : kernels::all_kernels()) {
    list.push_back(
        {{"isa", table->isa}, {"supported", table->supported()}, {"chosen", table == chosen}});
  }
  return list;
}

ordered_json huge_pages_json(const base::HugePages& pages) {
  ordered_json reserved = ordered_json::array();
  for (const auto& pool : pages.reserved) {
    reserved.push_back({{"page_bytes", pool.page_bytes},
                        {"num_pages", pool.num_pages},
                        {"num_free", pool.num_free}});
  }
  return {{"transparent", pages.transparent}, {"reserved", reserved}};
}

ordered_json machine_json(const Machine& machine, const kernels::Kernels* chosen) {
  return {{"processor", machine.processor},
          {"num_cores", machine.topology.cores.size()},
          {"num_processors", machine.num_processors},
          {"usable_cores", machine.usable_cores()},
          {"numa_node_bytes", machine.topology.numa_node_bytes},
          {"cpu_limit", or_null(machine.control_group.cpus)},
          {"instruction_sets", kernels_json(chosen)},
          {"memory_bytes", machine.memory_bytes},
          {"free_memory_bytes", machine.free_memory_bytes},
          {"memory_limit_bytes", or_null(machine.control_group.memory_limit_bytes)},
          {"memory_limit_free_bytes", or_null(machine.control_group.memory_free_bytes)},
          {"usable_memory_bytes", machine.usable_memory_bytes()},
          {"huge_pages", huge_pages_json(machine.huge_pages)},
          {"dev_shm_bytes", machine.dev_shm_bytes}};
}

ordered_json model_json(const DoctorReport& report) {
  const run::ModelFit& fit = *report.fit;
  return {{"dir", report.model_dir},
          {"gguf", report.gguf ? report.gguf->json() : ordered_json(nullptr)},
          {"num_slots", fit.plan.model.placement.num_slots},
          {"max_num_tokens", fit.plan.dispatch.max_tokens},
          {"dtype", fit.plan.model.forms.format_names()},
          {"fits", fit.fits()},
          {"bytes_needed", fit.bytes_needed},
          {"bytes_usable", fit.bytes_usable},
          {"dense_weights_bytes", fit.memory.dense_weights},
          {"slots_bytes_per_rank", fit.memory.slots_per_rank},
          {"symmetric_memory_bytes_per_rank", fit.memory.symmetric_memory_per_rank},
          {"working_memory_bytes_per_rank", fit.memory.working_memory_per_rank},
          {"kv_cache_bytes_per_1024_tokens", fit.memory.kv_bytes(kCacheExampleTokens)},
          {"kv_cache_tokens", fit.kv_tokens},
          {"state_bytes_per_request", fit.memory.state_bytes},
          {"notes", fit.plan.model.config.notes}};
}

ordered_json places_json(const std::vector<PromptPlace>& places) {
  ordered_json list = ordered_json::array();
  for (const PromptPlace& place : places) {
    list.push_back({{"place", place.label},
                    {"where", place.where},
                    {"bytes", or_null(place.bytes)},
                    {"free_bytes", or_null(place.free_bytes)},
                    {"works", !place.trouble}});
  }
  return list;
}

ordered_json packed_json(const PackedCache& cache) {
  ordered_json list = ordered_json::array();
  for (const PackedEntry& entry : cache.entries) {
    list.push_back(
        {{"name", entry.name},
         {"state", state_name(entry.state)},
         {"bytes", entry.bytes},
         {"parts", entry.num_parts},
         {"class", entry.record_class},
         {"trouble", entry.trouble.empty() ? ordered_json() : ordered_json(entry.trouble)}});
  }
  return {{"directory", cache.directory},
          {"free_bytes", or_null(cache.free_bytes)},
          {"verified", cache.is_verified},
          {"files", list}};
}

ordered_json recovery_json(const run::RecoveryForecast& forecast) {
  return {{"survives_any_rank", true},
          {"nodes", forecast.num_nodes},
          {"survives_any_node", false},
          {"survives_any_node_but_the_first", forecast.num_nodes > 1},
          {"ranks_after_node", forecast.ranks_after_node},
          {"slots_per_rank_after_node", forecast.slots_after_node},
          {"slots_bytes_after_node", forecast.slot_bytes_after_node},
          {"most_experts_lost_with_node", forecast.max_experts_lost_with_node},
          {"others_go_on", forecast.is_elastic},
          {"most_lost_experts", forecast.max_lost_experts},
          {"lost_bytes", forecast.lost_bytes},
          {"from_host_pool", forecast.has_pool},
          {"host_pool_bytes", forecast.pool_bytes},
          {"slots_per_rank", forecast.slots_before},
          {"slots_per_rank_after", forecast.slots_after},
          {"slots_bytes", forecast.slot_bytes_before},
          {"slots_bytes_after", forecast.slot_bytes_after},
          {"num_slots_to_lose_none", forecast.slots_without_loss},
          {"bytes_to_lose_none", forecast.replica_bytes}};
}

ordered_json advice_json(const run::Advice& advice) {
  return {{"finding", advice.finding}, {"remedy", advice.remedy}};
}

}  // namespace

std::string doctor_text(const DoctorReport& report) {
  std::string text = machine_lines(report);
  if (report.fit) text += model_lines(report);
  text += place_lines(report.places);
  if (report.packed) text += packed_lines(*report.packed);
  if (report.recovery) text += recovery_lines(*report.recovery, report.packed.has_value());
  if (!report.reuse.empty()) text += "\nprompt cache\n" + advise::reuse_text(report.reuse);
  text += limit_lines();
  const std::string judgement = advice_lines(report.warnings) + verdict(report);
  return judgement.empty() ? text : text + "\n" + judgement;
}

ordered_json doctor_json(const DoctorReport& report) {
  ordered_json json = {{"machine", machine_json(report.machine, report.chosen_kernels)},
                       {"cuda_toolkit", or_null(cuda_toolkit())},
                       {"ranks", report.num_ranks}};
  if (report.fit) json["model"] = model_json(report);
  if (report.reading) json["experts_from_disk"] = report.reading->json();
  json["prompt_places"] = places_json(report.places);
  if (report.packed) json["packed_weights"] = packed_json(*report.packed);
  if (report.recovery) json["recovery"] = recovery_json(*report.recovery);
  for (const advise::ReuseRow& row : report.reuse) {
    json["prompt_cache"].push_back({{"bytes", row.bytes}, {"share", row.share}});
  }
  json["limits"] = limits_json();
  json["warnings"] = ordered_json::array();
  for (const run::Advice& advice : report.warnings) {
    json["warnings"].push_back(advice_json(advice));
  }
  json["error"] = nullptr;
  if (!report.outcome.ok()) json["error"] = report.outcome.message();
  return json;
}

}  // namespace wideep::tools
