// SPDX-License-Identifier: Apache-2.0
//
// wideep disaggregated: one endpoint before servers that compute prompts and servers that answer,
// as TensorRT-LLM's disagg_config.yaml says.
//
// The router gets the servers of the file at once, or those of the etcd as they come; it answers 503
// as long as it has none that lives. This thread says which are missing, and gives up when too few
// have come in time.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "disaggregated/disagg_config.h"
#include "disaggregated/etcd_members.h"
#include "disaggregated/start_wait.h"
#include "foreign_options.h"
#include "router_command.h"
#include "traces/trace_settings.h"

namespace wideep::tools {
namespace {

using disaggregated::DisaggConfig;
using server::RouterMember;
using Clock = std::chrono::steady_clock;
using Takes = ForeignOption::Takes;

struct Options {
  RouterCommand common;
  std::string file;
  std::optional<std::string> host;
  std::optional<int> port;
  int start_timeout = 180;
  bool check = false;
  ForeignOptions foreign;
};

// trtllm-serve disaggregated's.
constexpr ForeignOption kForeign[] = {
    {"--request-timeout,-r", Takes::kNumber, nullptr,
     "servers say themselves when they are lost; a client that leaves ends its request"},
    {"--log-level,-l", Takes::kText, nullptr, "all lines are written; see --log-format"},
    {"--metrics-log-interval", Takes::kNumber, nullptr, "GET /metrics has them at any time"},
    {"--metadata-server-config-file,-m", Takes::kText, "",
     "disagg_cluster in the file of --config says where servers tell that they are there"},
};

// The servers that are there, as a cluster's etcd or the file says.
class Group {
 public:
  explicit Group(const DisaggConfig& config) : config_(config), members_(config.members()) {}

  void begin(server::Router& router) {
    if (!config_.cluster) return;
    watch_.emplace(*config_.cluster, [this, &router](const std::vector<RouterMember>& members) {
      {
        const std::lock_guard lock(mutex_);
        members_ = members;
      }
      router.set_members(members);
      const disaggregated::Needed there = disaggregated::needed_of(members);
      log::info("cluster '{}' has {} context and {} generation servers", config_.cluster->name,
                there.context, there.generation);
    });
  }
  void end() { watch_.reset(); }

  // Which servers are missing at the start; "": none.
  std::string missing() {
    if (config_.cluster) {
      const std::lock_guard lock(mutex_);
      return disaggregated::missing_text(members_,
                                         {.context = config_.cluster->min_context_servers,
                                          .generation = config_.cluster->min_generation_servers},
                                         {});
    }
    return disaggregated::missing_text(disaggregated::healthy_of(members_),
                                       disaggregated::needed_of(members_), members_);
  }

 private:
  const DisaggConfig& config_;
  std::mutex mutex_;
  std::vector<RouterMember> members_;              // guarded by mutex_; without a cluster they stay
  std::optional<disaggregated::EtcdWatch> watch_;  // last: it uses the members above
};

// Says who is missing, until all are there or the time is over.
class StartWait {
 public:
  StartWait(Group& group, int timeout_seconds)
      : group_(group), timeout_(timeout_seconds), end_(Clock::now() + timeout_) {}

  // Errors (failed): too few have come in time.
  Status look() {
    if (is_over_) return {};
    const std::string missing = group_.missing();
    is_over_ = missing.empty();
    if (is_over_) {
      log::info("all servers that are needed are there");
    } else if (Clock::now() >= end_) {
      return failed(fmt::format("--server-start-timeout: after {} s servers are still missing: {}",
                                timeout_.count(), missing));
    } else if (missing != told_) {
      log::info("waiting for {}", missing);
    }
    told_ = missing;
    return {};
  }

 private:
  Group& group_;
  std::chrono::seconds timeout_;
  Clock::time_point end_;
  std::string told_;
  bool is_over_ = false;
};

// Of the environment, and the endpoint of the file where it says none.
Result<std::optional<traces::TraceSettings>> read_traces(const DisaggConfig& config) {
  const auto variable = [&](const char* name) -> const char* {
    const char* value = std::getenv(name);
    const bool is_endpoint = std::string_view(name) == "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
    const bool is_said = std::getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != nullptr || value != nullptr;
    if (!is_endpoint || is_said || config.traces_endpoint.empty()) return value;
    return config.traces_endpoint.c_str();
  };
  auto settings = traces::read_trace_settings(variable, WIDEEP_VERSION);
  if (!settings.ok() && !config.traces_endpoint.empty()) {
    return settings.status().at(config.name + ": otlp_config");
  }
  return settings;
}

Status run(const Options& options) {
  options.common.log.apply();
  WIDEEP_TRY(options.foreign.take());
  WIDEEP_TRY_ASSIGN(DisaggConfig config, disaggregated::read_disagg_config(options.file));
  if (options.host) config.hostname = *options.host;
  if (options.port) config.port = *options.port;
  for (const std::string& note : config.notes) log::info("{}: {}", config.name, note);
  if (options.check) {
    fmt::print("{}", disaggregated::describe(config));
    return {};
  }
  RouterCommand command = options.common;
  command.router.http.host = config.hostname;
  command.router.http.port = config.port;
  command.router.replicas = config.members();
  command.router.disaggregation = config.options;
  WIDEEP_TRY_ASSIGN(command.router.traces, read_traces(config));
  Group group(config);
  StartWait wait(group, options.start_timeout);
  const auto begin = [&](server::Router& router) -> Status {
    log::info("disaggregated serving on http://{}:{}/v1", config.hostname, router.port());
    group.begin(router);
    return {};
  };
  return run_router(
      command, {.begin = begin, .look = [&] { return wait.look(); }, .end = [&] { group.end(); }});
}

}  // namespace

void add_disaggregated_command(command_line::Command app, Status* status) {
  const command_line::Command command = app.add_command(
      "disaggregated",
      "Distribute requests over servers that compute prompts and servers that answer");
  auto options = std::make_shared<Options>();
  command
      .add_option("--config,-c,--config-file", options->file,
                  "YAML file with the servers, TensorRT-LLM's disagg_config.yaml")
      .required()
      .path();
  command.add_option("--host", options->host,
                     "Address to listen on; wins over the file's hostname");
  command
      .add_option("--port", options->port,
                  "Port to listen on; 0: any free port; wins over the file's port")
      .range(0, 65535);
  command
      .add_option("--server-start-timeout,-t", options->start_timeout,
                  "Seconds in which the servers of the file, or as many as its disagg_cluster "
                  "wants, must be there; otherwise the command ends")
      .range(1, 24 * 60 * 60)
      .show_default();
  command.add_flag("--check", options->check,
                   "Print the servers and what the workers of both sections read, and end");
  add_router_options(command, &options->common);
  options->foreign.add_to(command, kForeign);
  command.on_run([options, status] { *status = run(*options); });
}

}  // namespace wideep::tools
