// SPDX-License-Identifier: Apache-2.0
#include "environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/log.h"

namespace wideep::tools {
namespace {

using Commands = std::span<const std::string_view>;

// The servers that bench accuracy and chat start inherit its environment.
constexpr std::string_view kRuns[] = {
    "chat",          "generate",          "serve",          "bench throughput",
    "bench latency", "bench speculation", "bench accuracy", "bench compare-routing",
    "figures ngram"};
constexpr std::string_view kRouting[] = {
    "chat",        "generate",          "serve",          "bench throughput",      "bench latency",
    "bench model", "bench speculation", "bench accuracy", "bench compare-routing", "figures ngram"};
// The last three refuse them, because they run a model several times.
constexpr std::string_view kStatistics[] = {"chat",
                                            "generate",
                                            "serve",
                                            "bench throughput",
                                            "bench latency",
                                            "bench model",
                                            "bench accuracy",
                                            "bench compare-routing",
                                            "bench speculation",
                                            "figures ngram"};
constexpr std::string_view kQueues[] = {"chat",          "serve",          "bench throughput",
                                        "bench latency", "bench accuracy", "bench compare-routing"};
// The servers that bench accuracy and chat start send traces, too.
constexpr std::string_view kTraces[] = {"chat", "serve", "route", "disaggregated",
                                        "bench accuracy"};
constexpr Commands kNone = {};

constexpr std::string_view kNoTransfer = "there is no transfer of KV caches between workers";
constexpr std::string_view kNoCollector = "there is no garbage collector";
constexpr std::string_view kOwnExchange =
    "ranks write rows to each other's memory; moe_config.dispatch_strategy chooses how";

constexpr std::string_view kNoRequests = "it answers no requests that could be traced";

constexpr std::array kVariables = std::to_array<EnvironmentVariable>({
    {"EXPERT_STATISTIC_PATH", kStatistics, "it counts no experts of a run",
     "The folder for counts of the experts that tokens chose."},
    {"EXPERT_STATISTIC_ITER_RANGE", kStatistics, "it counts no experts of a run",
     "The iterations that are counted, A-B."},
    {"ENABLE_PERFECT_ROUTER", kRouting, "it runs no router of a model",
     "1: all ranks are chosen equally often, whatever the router says."},
    {"TLLM_PROFILE_START_STOP", kRuns, "it profiles no iterations",
     "The iterations that are profiled, unless --profile-range says."},
    {"TLLM_PROFILE_RECORD_GC", kRuns, "it profiles no iterations",
     "1: the profile has memory allocations of the forward thread."},
    {"TLLM_TORCH_PROFILE_TRACE", kRuns, "it profiles no iterations",
     "The profile's file, unless --profile-output names one."},
    {"TLLM_NVTX_DEBUG", kRuns, "it marks no iterations",
     "1: every span of the profile is an NVTX range."},
    {"TLLM_LLMAPI_ENABLE_NVTX", kRuns, "it marks no iterations",
     "1: every iteration is an NVTX range."},
    {"TLLM_PROFILE_LOG_RANKS", kRuns, "it has no iterations of ranks to log",
     "The ranks whose iterations are logged: 0; 0,1; all."},
    {"TLLM_BENCHMARK_REQ_QUEUES_SIZE", kQueues, "it does not wait for a full queue",
     "The first iteration waits for so many requests."},
    {"TRTLLM_ENABLE_PDL", kNone, "it launches no kernels on GPUs; the library's communicator does"},

    {"TRTLLM_DISABLE_KV_CACHE_TRANSFER_OVERLAP", kNone, kNoTransfer},
    {"TRTLLM_DISAGG_BENCHMARK_GEN_ONLY", kNone,
     "a worker computes its prompts itself; TLLM_BENCHMARK_REQ_QUEUES_SIZE fills it first"},
    {"TRTLLM_USE_NIXL_KVCACHE", kNone, kNoTransfer},
    {"TRTLLM_USE_UCX_KVCACHE", kNone, kNoTransfer},
    {"TRTLLM_USE_MOONCAKE_KVCACHE", kNone, kNoTransfer},
    {"TRTLLM_USE_MPI_KVCACHE", kNone, kNoTransfer},
    {"TRTLLM_FORCE_COMM_METHOD", kNone, kOwnExchange},
    {"TRTLLM_CAN_USE_DEEP_EP", kNone, kOwnExchange},
    {"TRTLLM_MOE_POST_QUANT_ALLTOALLV", kNone,
     "rows are sent in the form of moe_config.dispatch_dtype"},
    {"ENABLE_CONFIGURABLE_MOE", kNone, "there is only one MoE module"},
    {"TRTLLM_EPLB_SHM_NAME", kNone, "the host pool has no name: ranks inherit it"},
    {"TRTLLM_SERVER_DISABLE_GC", kNone, kNoCollector},
    {"TRTLLM_WORKER_DISABLE_GC", kNone, kNoCollector},
    {"TLLM_LOG_LEVEL", kNone, "all its lines are for users"},
    {"TLLM_METRICS_ALL_RANKS", kNone, "metrics are always those of all ranks"},
    {"TLLM_AUTOTUNER_CACHE_PATH", kNone, "kernels are not tuned at the start"},
    {"TLLM_NUMA_AWARE_WORKER_AFFINITY", kNone,
     "the system places threads; start it with numactl to bind them"},
    {"TLLM_STREAM_INTERVAL_THRESHOLD", kNone, "stream_interval is the same for all loads"},
    {"TLLM_LLM_ENABLE_DEBUG", kNone, "all its lines are for users"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_HEADERS", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TIMEOUT", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_PROTOCOL", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_COMPRESSION", kTraces, kNoRequests},
    {"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", kTraces, kNoRequests},
    {"OTEL_TRACES_EXPORTER", kTraces, kNoRequests},
    {"OTEL_TRACES_SAMPLER", kTraces, kNoRequests},
    {"OTEL_TRACES_SAMPLER_ARG", kTraces, kNoRequests},
    {"OTEL_SERVICE_NAME", kTraces, kNoRequests},
    {"OTEL_RESOURCE_ATTRIBUTES", kTraces, kNoRequests},
    {"OTEL_SDK_DISABLED", kTraces, kNoRequests},
    {"NCCL_GRAPH_REGISTER", kNone, "there is no NCCL"},
    {"UCX_CUDA_IPC_ENABLE_MNNVL", kNone, "no GPU memory goes through UCX"},
});

std::string& current_command() {
  static std::string command;
  return command;
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return kVariables; }

std::string command_of(const std::vector<std::string>& arguments) {
  constexpr std::string_view kGroups[] = {"balance", "bench", "simulate", "parallel", "figures"};
  if (arguments.empty() || arguments[0].starts_with("-")) return "";
  const bool is_group = std::ranges::find(kGroups, arguments[0]) != std::end(kGroups);
  if (!is_group) return arguments[0];
  if (arguments.size() < 2 || arguments[1].starts_with("-")) return "";
  return arguments[0] + " " + arguments[1];
}

std::string unused_line(std::string_view variable, std::string_view command) {
  const auto found = std::ranges::find(kVariables, variable, &EnvironmentVariable::name);
  if (found == kVariables.end() ||
      std::ranges::find(found->commands, command) != found->commands.end()) {
    return "";
  }
  return fmt::format("{} is set, but wideep {} does not use it: {}", variable, command, found->why);
}

void log_unused_variables(const std::string& command) {
  current_command() = command;
  if (command.empty()) return;
  for (const EnvironmentVariable& each : kVariables) {
    const char* value = std::getenv(std::string(each.name).c_str());
    if (value != nullptr && *value != '\0') log_if_unused(each.name);
  }
}

void log_if_unused(std::string_view variable) {
  const std::string line = unused_line(variable, current_command());
  if (!line.empty()) log::info("{}", line);
}

}  // namespace wideep::tools
