// SPDX-License-Identifier: Apache-2.0
//
// Options win over TensorRT-LLM's environment variables, which are read here and nowhere deeper, so
// that a variable that has no effect can be refused with its name. Where ranks were started by a
// launcher, their number is a default like any other.
#include "run_options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "base/byte_size.h"
#include "base/log.h"
#include "base/nvidia_profiler.h"
#include "base/try.h"
#include "environment.h"
#include "output_file.h"

namespace wideep::tools {
namespace {

constexpr uint64_t kRandomWeightsSeed = 1;  // the default of wideep bench model --seed

// Reads an environment variable of TensorRT-LLM that must be 0, 1 or unset.
Result<bool> is_set(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0' || value == std::string_view("0")) return false;
  if (value == std::string_view("1")) return true;
  return invalid_input(fmt::format("{}: expected 0 or 1, found {}", name, value));
}

// The first of these variables that is set. Error messages need its name.
struct FromEnvironment {
  std::string name, value;
};
FromEnvironment first_set(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return {name, value};
  }
  return {};
}

Result<run::Marks> marks_wanted() {
  WIDEEP_TRY_ASSIGN(const bool iterations, is_set("TLLM_LLMAPI_ENABLE_NVTX"));
  WIDEEP_TRY_ASSIGN(const bool all_spans, is_set("TLLM_NVTX_DEBUG"));
  if (!iterations && !all_spans) return run::Marks::kNone;
  if (base::cuda_toolkit_version().empty()) {
    return invalid_input(fmt::format(
        "{}=1: this build has no CUDA, so there are no NVTX ranges; build it with cmake "
        "-DWIDEEP_CUDA=ON where the CUDA toolkit is, or unset it (--profile-range records every "
        "step)",
        all_spans ? "TLLM_NVTX_DEBUG" : "TLLM_LLMAPI_ENABLE_NVTX"));
  }
  return all_spans ? run::Marks::kAllSpans : run::Marks::kIterations;
}

// Options win over environment variables, which serve scripts written for TensorRT-LLM. An output
// file without iterations would silently stay empty, so it is an error.
Result<std::optional<run::ProfileRequest>> profile_request(const RankRunOptions& options) {
  run::ProfileRequest request;
  WIDEEP_TRY_ASSIGN(request.marks, marks_wanted());
  WIDEEP_TRY_ASSIGN(request.allocations, is_set("TLLM_PROFILE_RECORD_GC"));
  FromEnvironment range{"--profile-range", options.profile_range};
  if (range.value.empty()) {
    range = first_set({"WIDEEP_PROFILE_START_STOP", "TLLM_PROFILE_START_STOP"});
  }
  FromEnvironment output{"--profile-output", options.profile_output};
  if (output.value.empty()) output = first_set({"TLLM_TORCH_PROFILE_TRACE"});
  if (range.value.empty()) {
    if (request.allocations) output = {"TLLM_PROFILE_RECORD_GC", "1"};
    if (!output.value.empty()) {
      return invalid_input(
          fmt::format("{} {}: no iterations given; add --profile-range A-B (or "
                      "WIDEEP_PROFILE_START_STOP)",
                      output.name, output.value));
    }
    if (request.marks == run::Marks::kNone) return std::optional<run::ProfileRequest>();
    return std::optional(std::move(request));
  }
  WIDEEP_TRY_ASSIGN(request.ranges, run::parse_ranges(range.value, range.name));
  request.path = output.value.empty() ? "profile.json" : output.value;
  WIDEEP_TRY(check_output_file(request.path, "--profile-output"));
  return std::optional(std::move(request));
}

Status apply_iteration_log(const RankRunOptions& options, run::RunOptions* run) {
  constexpr int64_t kDefaultMaxMib = 1024;  // about two million iterations
  if (options.iteration_log.empty() && options.iteration_log_max_mib) {
    return invalid_input("--iteration-log-max-size: has no effect without --iteration-log FILE");
  }
  run->iteration_log = options.iteration_log;
  run->iteration_log_max_bytes =
      static_cast<uint64_t>(options.iteration_log_max_mib.value_or(kDefaultMaxMib)) << 20;
  return {};
}

// The ranks' events, and the files, are those of rank 0.
Status apply_recording(const RankRunOptions& options, PathAlone alone, run::RunOptions* run) {
  WIDEEP_TRY_ASSIGN(Recording recording,
                    read_record_options(options.record, run::receives_events(*run), alone));
  WIDEEP_TRY(check_recording(recording, run->perfect_router));
  run->statistics = std::move(recording.statistics);
  run->routing_log = std::move(recording.routing_log);
  return {};
}

// These options win over the configuration.
void apply_scheduling(const RankRunOptions& options, bool logs, parallel::ParallelConfig* config) {
  if (options.max_batch_size) {
    if (logs) {
      log_override("--max-batch-size", *options.max_batch_size, "max_batch_size",
                   config->max_batch_size, config->name);
    }
    config->max_batch_size = *options.max_batch_size;
  }
  if (!options.scheduler_policy) return;
  const std::string policy =
      *options.scheduler_policy == "max_utilization" ? "MAX_UTILIZATION" : "GUARANTEED_NO_EVICT";
  std::string& set = config->scheduler_config.capacity_scheduler_policy;
  if (logs) {
    log_override("--scheduler-policy", policy, "scheduler_config.capacity_scheduler_policy", set,
                 config->name);
  }
  set = policy;
}

// What --context and --kv-cache-memory set may also be in the configuration, but then it must be the
// same: both were chosen for this model, and which one is meant cannot be known.
Status apply_cache(const RankRunOptions& options, run::RunOptions* run) {
  parallel::ParallelConfig& config = run->parallel;
  if (options.context) {
    if (config.max_seq_len.value_or(*options.context) != *options.context) {
      return invalid_input(
          fmt::format("--context {} contradicts max_seq_len: {} of {}: give one of them, or the "
                      "same number",
                      *options.context, *config.max_seq_len, config.name));
    }
    config.max_seq_len = *options.context;
    run->has_context_option = true;
  }
  if (options.kv_cache_memory.empty()) return {};
  if (const auto max_tokens = config.kv_cache_config.max_tokens) {
    return invalid_input(fmt::format(
        "--kv-cache-memory {} contradicts kv_cache_config.max_tokens: {} of {}: give one of them",
        options.kv_cache_memory, *max_tokens, config.name));
  }
  WIDEEP_TRY_ASSIGN(run->cache_bytes, base::parse_byte_size(options.kv_cache_memory));
  return {};
}

// Before anything else reads the environment.
void set_variables(const parallel::ParallelConfig& config, bool logs) {
  for (const auto& [name, value] : config.env_overrides) {
    ::setenv(name.c_str(), value.c_str(), 1);
    if (logs) log_if_unused(name);
  }
}

// The ranks of TLLM_PROFILE_LOG_RANKS: numbers with commas, or "all".
Result<std::optional<std::vector<int>>> printing_ranks(const parallel::ParallelConfig& config,
                                                       bool logs) {
  constexpr const char* kName = "TLLM_PROFILE_LOG_RANKS";
  std::vector<int> ranks = {0};
  const std::string value = first_set({kName}).value;
  if (value.empty()) return std::optional(ranks);
  if (!config.print_iter_log) {
    if (logs) log::info("{} has no effect without print_iter_log: true in --config", kName);
    return std::optional(ranks);
  }
  if (value == "all") return std::optional<std::vector<int>>();
  ranks.clear();
  const int num_ranks = config.mapping().world_size();
  const char* end = value.data() + value.size();
  for (const char* next = value.data(); next <= end;) {
    int rank = -1;
    const auto [stop, error] = std::from_chars(next, end, rank);
    if (error != std::errc() || rank < 0 || rank >= num_ranks || (stop != end && *stop != ',')) {
      return invalid_input(
          fmt::format("{}: expected all, or ranks from 0 to {} with commas, found {}", kName,
                      num_ranks - 1, value));
    }
    ranks.push_back(rank);
    next = stop + 1;
  }
  return std::optional(ranks);
}

std::string complain_of_size(const std::string& text) {
  const Result<uint64_t> bytes = base::parse_byte_size(text);
  return bytes.ok() ? "" : bytes.status().message();
}

std::string complain_of_expert_memory(const std::string& text) {
  const Result<run::ExpertMemory> memory = run::parse_expert_memory(text);
  return memory.ok() ? "" : memory.status().message();
}

}  // namespace

void add_rank_run_options(command_line::Command command, RankRunOptions* options) {
  add_parallel_options(command, &options->parallel);
  command
      .add_option("--threads-per-rank", options->threads_per_rank,
                  "Threads of each rank; 0: cores divided by ranks")
      .range(0, 1024);
  command
      .add_option("--max-batch-size", options->max_batch_size,
                  "Most requests of a rank in one iteration")
      .range(1, 1 << 20);
  command
      .add_option("--context", options->context,
                  "Most tokens of a prompt and its answer together (max_seq_len of --config; "
                  "default: as the model has it)")
      .range(1, 1 << 24);
  command
      .add_option("--kv-cache-memory", options->kv_cache_memory,
                  "Memory of each rank for cached keys and values, as 8G, 512M or 1.5GiB, in place "
                  "of kv_cache_config.max_tokens (default: what requests need, at most 30 % of the "
                  "free memory of all ranks together)")
      .check(complain_of_size);
  command
      .add_option("--scheduler-policy", options->scheduler_policy,
                  "When a request starts: guaranteed_no_evict, when the KV cache has room for its "
                  "prompt and all tokens it may generate; max_utilization, when it has room for "
                  "the tokens so far (a request may then be paused and computed again)")
      .one_of({"guaranteed_no_evict", "max_utilization"});
  command
      .add_option("--timeout", options->timeout_seconds,
                  "Seconds that a rank waits for another rank before the run fails")
      .range(0.01, 86400.0)
      .show_default();
  add_perfect_router_option(command, &options->perfect_router);
  command.add_option(
      "--profile-range", options->profile_range,
      "Iterations to profile on every rank: A-B, where B is not included; several ranges with "
      "commas (also WIDEEP_PROFILE_START_STOP, TLLM_PROFILE_START_STOP)");
  command
      .add_option("--profile-output", options->profile_output,
                  "File for the profile, a Chrome trace to open in ui.perfetto.dev (default: "
                  "profile.json; also TLLM_TORCH_PROFILE_TRACE)")
      .path();
  command.add_flag(
      "--random-weights", options->random_weights,
      "Random weights, to measure speed: only the model's config.json and tokenizer.json are read");
  command
      .add_option("--packed-cache", options->packed_cache,
                  "Directory for packed weights, as kernels read them: written at the first start, "
                  "taken from there at the others (wideep pack writes it beforehand)")
      .path();
  command
      .add_option("--expert-memory", options->expert_memory,
                  "Memory of each rank for its experts, as 12G or 50%; the others are read from "
                  "--packed-cache when they are needed (default: all are in memory)")
      .check(complain_of_expert_memory);
  command
      .add_option(
          "--iteration-log", options->iteration_log,
          "File to which each iteration appends one line of JSON: queue, tokens, KV cache, balance")
      .path();
  command
      .add_option(
          "--iteration-log-max-size", options->iteration_log_max_mib,
          "MiB after which the iteration log becomes FILE.1, in place of the one before, and "
          "a new FILE begins; an earlier run's FILE.1 is removed at the start; 0: never "
          "(default: 1024)")
      .range(0, 1 << 30);
  add_record_options(command, &options->record);
}

void add_perfect_router_option(command_line::Command command, bool* option) {
  command.add_flag(
      "--perfect-router", *option,
      "Deal the choices of experts to all ranks in turn, to measure the speed at perfect "
      "balance; the generated texts are meaningless (also ENABLE_PERFECT_ROUTER=1)");
}

Result<bool> read_perfect_router(bool option) {
  WIDEEP_TRY_ASSIGN(const bool variable, is_set("ENABLE_PERFECT_ROUTER"));
  return option || variable;
}

void add_model_option(command_line::Command command, std::string* model_dir, bool is_required) {
  command_line::Option model =
      command
          .add_option("--model", *model_dir,
                      "Model directory (Hugging Face layout), or a GGUF file; also as MODEL alone")
          .model();
  if (is_required) model.required();
  command.add_positional("MODEL", model);
}

void add_generation_config_option(command_line::Command command, std::string* from) {
  command
      .add_option("--generation-config", *from,
                  "How tokens are drawn where nothing else is said: auto: as the model's "
                  "generation_config.json or GGUF file has it; none; or the directory of such a "
                  "file")
      .show_default();
}

Result<int> read_start_queue() {
  constexpr const char* kName = "TLLM_BENCHMARK_REQ_QUEUES_SIZE";
  constexpr int kMax = 1 << 20;
  const char* value = std::getenv(kName);
  if (value == nullptr || *value == '\0') return 0;
  char* end = nullptr;
  const long size = std::strtol(value, &end, 10);
  if (*end == '\0' && size >= 1 && size <= kMax) return static_cast<int>(size);
  return invalid_input(
      fmt::format("{}: expected requests, from 1 to {}, found {}; unset it to begin at once", kName,
                  kMax, value));
}

Status apply_rank_run_options(const RankRunOptions& options, bool log_notes, run::RunOptions* run,
                              PathAlone alone) {
  ParallelOptions parallel = options.parallel;
  if (run->started != nullptr && parallel.config.empty() && !parallel.ranks) {
    parallel.ranks = run->started->num_ranks();
  }
  WIDEEP_TRY_ASSIGN(run->parallel, read_parallel_options(parallel, log_notes));
  set_variables(run->parallel, log_notes);
  WIDEEP_TRY_ASSIGN(run->printing_ranks, printing_ranks(run->parallel, log_notes));
  if (!options.streams && run->parallel.stream_interval.value_or(1) > 1 && log_notes) {
    log::info("stream_interval has no effect: only wideep serve streams answers to clients");
  }
  apply_scheduling(options, log_notes, &run->parallel);
  run->host_cache_bytes = run->parallel.kv_cache_config.host_cache_bytes();
  WIDEEP_TRY(apply_cache(options, run));
  if (log_notes) warn_of_batch_size(run->parallel);
  run->threads_per_rank = options.threads_per_rank;
  WIDEEP_TRY_ASSIGN(run->profile, profile_request(options));
  WIDEEP_TRY_ASSIGN(run->perfect_router, read_perfect_router(options.perfect_router));
  run->packed_cache = options.packed_cache;
  if (!options.expert_memory.empty()) {
    WIDEEP_TRY_ASSIGN(run->expert_memory, run::parse_expert_memory(options.expert_memory));
  }
  if (options.random_weights) run->random_weights = kRandomWeightsSeed;
  WIDEEP_TRY(apply_iteration_log(options, run));
  WIDEEP_TRY(apply_recording(options, alone, run));
  run->format = options.parallel.format();
  run->timeout = std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1e3));
  return {};
}

}  // namespace wideep::tools
