// SPDX-License-Identifier: Apache-2.0
//
// wideep serve: OpenAI's HTTP endpoints over a model on N ranks.
//
// Options become server::ServeOptions; server/serve.h runs it. Combinations that could not work, or
// that would leave the service open by accident (an empty key, nodes without a secret), are refused
// here, before the model is loaded. Groups of options have a function each, since there are many.
#include "server/serve.h"

#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/log.h"
#include "base/try.h"
#include "commands.h"
#include "disaggregated/etcd_members.h"
#include "generate_output.h"
#include "group/members.h"
#include "http_limit_options.h"
#include "keys.h"
#include "log_options.h"
#include "prompt_cache_options.h"
#include "run_options.h"
#include "schedule/role.h"
#include "serve_options.h"
#include "started.h"
#include "store/page_trust.h"
#include "store/redis_address.h"
#include "trace_variables.h"
#include "version.h"

namespace wideep::tools {
namespace {

struct Options {
  server::ServeOptions serve;
  std::string draft_metrics = "none";
  std::string metrics_names = "wideep";
  std::string on_rank_loss = "recover";
  std::string kv_events;
  std::optional<std::string> role, page_address;
  std::optional<std::string> cluster_uri, cluster_name;
  std::string options_file, api_key_file, admin_key_file, page_key_file;
  bool no_ui = false;
  std::optional<int> stream_interval;  // nothing: that of the configuration
  RankRunOptions ranks{.streams = true};
  PromptCacheOptions prompts_kept;
  LogOptions log;
};

// A launcher that starts one process on each node may say which it is.
Status check_nodes(server::ServeOptions* result) {
  server::NodeOptions& nodes = result->nodes;
  if (nodes.num_nodes == 1) {
    const char* option = nodes.node > 0            ? "--node-rank"
                         : !nodes.key_file.empty() ? "--cluster-key-file"
                         : nodes.insecure          ? "--insecure-cluster"
                                                   : nullptr;
    if (option == nullptr) return {};
    return invalid_input(
        fmt::format("{}: has no effect without --nnodes; add the number of nodes", option));
  }
  if (const char* node = std::getenv("SLURM_PROCID"); node != nullptr && nodes.node < 0) {
    nodes.node = std::atoi(node);
  }
  const int num_ranks = result->run.parallel.mapping().world_size();
  if (num_ranks < nodes.num_nodes) {
    return invalid_input(
        fmt::format("--nnodes: {} nodes for {} ranks: expected at most one node "
                    "for each; add ranks (--ranks, --config)",
                    nodes.num_nodes, num_ranks));
  }
  if (nodes.node < 0 || nodes.node >= nodes.num_nodes) {
    return invalid_input(fmt::format(
        "--node-rank: expected 0 to {} on the {} nodes, {}", nodes.num_nodes - 1, nodes.num_nodes,
        nodes.node < 0 ? "found none" : "found " + std::to_string(nodes.node)));
  }
  if (nodes.address.empty()) {
    return invalid_input("--master-addr: expected the address of node 0, found none");
  }
  if (!result->run.keeps_ranks) {
    return invalid_input("--nnodes: needs --on-rank-loss recover");
  }
  if (nodes.insecure && !nodes.key_file.empty()) {
    return invalid_input("--insecure-cluster: leave it out where --cluster-key-file is given");
  }
  return {};
}

// A key that no option has said. One that is set and empty is a mistake of a script, after which
// nobody would need one.
Status take_key(const char* variable, const std::string& option, const std::string& file,
                std::string* key) {
  if (!file.empty() && !key->empty()) {
    return invalid_input(fmt::format("{0}-file: leave it out where {0} is given", option));
  }
  if (!file.empty()) {
    WIDEEP_TRY_ASSIGN(*key, read_key_file(option + "-file", file));
    return {};
  }
  const char* value = std::getenv(variable);
  if (value == nullptr || !key->empty()) return {};
  if (const std::string complaint = complain_of_key(value); !complaint.empty()) {
    return invalid_input(fmt::format("{}: {}; unset it for none", variable, complaint));
  }
  *key = value;
  return {};
}

// A directory without iterations is for the recordings that clients start.
Status apply_recordings(const Options& options, server::ServeOptions* result) {
  WIDEEP_TRY_ASSIGN(const Recording recording,
                    read_record_options(options.ranks.record, false, PathAlone::kTaken));
  result->service.recorder.directory = recording.statistics_path;
  result->run.records_on_request = !recording.statistics_path.empty();
  result->run.slot_counts = result->run.records_on_request;
  if (recording.routing_log && !recording.routing_log->range) {
    return invalid_input(
        "--routing-log: a server may run for ever, and would keep every iteration in memory; add "
        "--routing-log-iter-range A-B");
  }
  return {};
}

// What would have no effect is a mistake.
Status check_prompt_effects(const server::ServeOptions& options) {
  if (!options.service.export_dir.empty() && !options.run.names_places()) {
    return invalid_input(
        "--prompt-cache-export-dir: has no effect where prompts are kept nowhere; add "
        "--prompt-cache-dir, --host-cache-size or --prompt-cache-redis, or leave it out");
  }
  const bool is_warmed = !options.warm_file.empty();
  if (options.run.reuses_pages() || (!is_warmed && !options.kv_events)) return {};
  return invalid_input(fmt::format(
      "{}: has no effect where requests share no pages (kv_cache_config."
      "enable_block_reuse: false, --routing-log, --enable-return-routed-experts): leave "
      "one of them out",
      is_warmed ? "--prompt-cache-warm" : "--kv-events-config"));
}

Result<std::string> read_page_key(const std::string& path) {
  constexpr const char* kOption = "--page-key-file";
  WIDEEP_TRY_ASSIGN(std::string key, read_key_file(kOption, path));
  constexpr size_t kMinBytes = store::PageTrust::kMinKeyBytes;
  if (key.size() >= kMinBytes) return key;
  return invalid_input(
      fmt::format("{}: {}: the first line: expected a key of at least {} bytes, found {}; write "
                  "one with: openssl rand -hex 32",
                  kOption, path, kMinBytes, key.size()));
}

// HOST[:PORT], or the host of the endpoints; without a key that of this machine, as no server of
// another one would take pages. Without a port: any that is free.
Result<store::RedisHost> page_address(const Options& options) {
  if (!options.page_address) {
    const bool has_key = !options.page_key_file.empty();
    return store::RedisHost{.name = has_key ? options.serve.http.host : "127.0.0.1", .port = 0};
  }
  const std::string& text = *options.page_address;
  const size_t colon = text.rfind(':');
  const bool has_port = colon != text.npos && text.find(']', colon) == text.npos;
  auto address = store::parse_redis_host(text);
  WIDEEP_TRY(address.status().at("--page-address"));
  if (!has_port) address->port = 0;
  return address;
}

// Pages are shared where an option or the configuration asks for it. A configuration for
// TensorRT-LLM may ask for it without the pages: there caches go whole from worker to worker.
Status apply_sharing(const Options& options, bool logs, server::ServeOptions* result) {
  const bool has_key = !options.page_key_file.empty();
  const bool is_asked = options.role || options.page_address;
  if (options.role) result->role = *engine::role_named(*options.role);
  if (!is_asked && !result->run.parallel.cache_transceiver_config) {
    if (!has_key) return {};
    return invalid_input(
        "--page-key-file: has no effect where no pages are shared with other servers; add --role, "
        "or leave it out");
  }
  if (!result->run.reuses_pages()) {
    constexpr const char* kWhy =
        "pages of prompts are not shared (kv_cache_config.enable_block_reuse: false, "
        "--routing-log, "
        "--enable-return-routed-experts)";
    if (is_asked) {
      return invalid_input(fmt::format("{}: has no effect where {}: leave one of them out",
                                       options.role ? "--role" : "--page-address", kWhy));
    }
    if (logs) log::info("cache_transceiver_config has no effect, as {}", kWhy);
    return {};
  }
  if (has_key) {
    WIDEEP_TRY_ASSIGN(result->service.page_key, read_page_key(options.page_key_file));
  }
  WIDEEP_TRY_ASSIGN(result->pages, page_address(options));
  result->run.takes_from_peers = true;
  return {};
}

// The option wins over the configuration.
int stream_interval(const Options& options, const parallel::ParallelConfig& config, bool logs) {
  if (!options.stream_interval) return static_cast<int>(config.stream_interval.value_or(1));
  if (logs) {
    log_override("--stream-interval", *options.stream_interval, "stream_interval",
                 config.stream_interval, config.name);
  }
  return *options.stream_interval;
}

Result<server::ServeOptions> serve_options(const Options& options, const Started& started) {
  server::ServeOptions result = options.serve;
  WIDEEP_TRY(options.serve.parsers.check());
  result.service.draft_metrics = options.draft_metrics == "summary" ? server::DraftMetrics::kSummary
                                 : options.draft_metrics == "detailed"
                                     ? server::DraftMetrics::kDetailed
                                     : server::DraftMetrics::kNone;
  result.service.has_pages = !options.no_ui;
  result.service.metrics_names = options.metrics_names == "vllm"   ? server::MetricsNames::kVllm
                                 : options.metrics_names == "both" ? server::MetricsNames::kBoth
                                                                   : server::MetricsNames::kWideep;
  result.service.commit = commit();
  result.service.isa = isa();
  result.run.started = started.ranks();
  result.run.expert_load = true;
  result.run.takes_grammars = true;
  WIDEEP_TRY(
      apply_rank_run_options(options.ranks, started.prints(), &result.run, PathAlone::kTaken));
  WIDEEP_TRY(apply_recordings(options, &result));
  WIDEEP_TRY(apply_prompt_cache_options(options.prompts_kept, started.prints(), &result.run));
  result.service.stream_interval = stream_interval(options, result.run.parallel, started.prints());
  // Chats come without a limit, and each would reserve the rest of its context.
  result.run.preferred_policy = engine::CapacityPolicy::kMaxUtilization;
  // A launcher watches its ranks itself.
  result.run.keeps_ranks = options.on_rank_loss == "recover" && started.ranks() == nullptr;
  WIDEEP_TRY(check_nodes(&result));
  if (result.run.keeps_ranks) {
    WIDEEP_TRY(transport::check_max_ranks(result.run.parallel.mapping().world_size()));
  }
  if (result.service.draft_metrics != server::DraftMetrics::kNone &&
      !result.run.parallel.speculative_config) {
    return invalid_input(
        "--per-request-spec-decode-metrics: has no effect without speculative_config in --config; "
        "add it or leave out the option");
  }
  WIDEEP_TRY_ASSIGN(result.start_queue, read_start_queue());
  WIDEEP_TRY(
      take_key("WIDEEP_API_KEY", "--api-key", options.api_key_file, &result.service.api_key));
  WIDEEP_TRY(take_key("WIDEEP_ADMIN_KEY", "--admin-key", options.admin_key_file,
                      &result.service.admin_key));
  result.http.guards_hosts = result.service.api_key.empty() || !result.http.allowed_hosts.empty();
  result.http.guards_origins = true;
  result.access_log = options.log.access;
  WIDEEP_TRY_ASSIGN(result.traces, read_trace_variables());
  if (!options.kv_events.empty()) {
    WIDEEP_TRY_ASSIGN(result.kv_events,
                      kv_events::read_events_config(options.kv_events, "--kv-events-config"));
  }
  result.run.tells_pages = result.kv_events.has_value();
  WIDEEP_TRY(check_prompt_effects(result));
  WIDEEP_TRY(apply_sharing(options, started.prints(), &result));
  result.http.has_key = !result.service.api_key.empty();
  return result;
}

// The cluster of the configuration, but for what the options say.
Result<std::optional<parallel::DisaggCluster>> cluster_of(
    const Options& options, const std::optional<parallel::DisaggCluster>& configured) {
  std::optional<parallel::DisaggCluster> cluster = configured;
  if (options.cluster_uri) {
    const auto etcd = parallel::parse_cluster_uri(*options.cluster_uri);
    WIDEEP_TRY(etcd.status().at("--disagg-cluster-uri"));
    if (!cluster) cluster.emplace();
    cluster->etcd = *etcd;
  }
  if (options.cluster_name) {
    if (!cluster) {
      return invalid_input(
          "--disagg-cluster-name: has no effect without a cluster; add --disagg-cluster-uri "
          "etcd://host:port or disagg_cluster in --config");
    }
    if (options.cluster_name->find('/') != std::string::npos) {
      return invalid_input(
          fmt::format("--disagg-cluster-name: expected a name without '/', found "
                      "'{}'",
                      *options.cluster_name));
    }
    cluster->name = *options.cluster_name;
  }
  return cluster;
}

// Where others reach a server that listens on `host`; "": it listens on all addresses.
std::string reached_host(const std::string& host) {
  return host == "0.0.0.0" || host == "::" || host == "[::]" ? "" : host;
}

Status run(const Options& options, const Started& started) {
  options.log.apply();
  const Result<server::ServeOptions> read = serve_options(options, started);
  WIDEEP_TRY(started.agree_on(read.status()));
  RunLines lines;
  server::ServeOptions serve = *read;
  const base::ServiceNotifier manager = base::ServiceNotifier::take_from_environment();
  if (manager.is_there()) serve.manager = &manager;
  WIDEEP_TRY_ASSIGN(const auto cluster, cluster_of(options, serve.run.parallel.disagg_cluster));
  std::optional<disaggregated::EtcdRegistration> registration;
  if (cluster) {
    serve.membership = &registration.emplace(*cluster, reached_host(serve.http.host), serve.role);
  }
  return server::serve(serve, lines);
}

// Empty as of `--api-key "$KEY"` in a script that has not set KEY.
std::string complain_of_option(const std::string& key) {
  const std::string complaint = complain_of_key(key);
  return complaint.empty() ? "" : complaint + "; leave the option out for none";
}

void add_address_options(command_line::Command command, Options& options) {
  command.add_option("--host", options.serve.http.host, "Address to listen on").show_default();
  command.add_option("--port", options.serve.http.port, "Port to listen on; 0: any free port")
      .range(0, 65535)
      .show_default();
  command
      .add_option("--api-key", options.serve.service.api_key,
                  "Key that clients must send. Better set WIDEEP_API_KEY: process lists show "
                  "options, not variables")
      .check(complain_of_option);
  command
      .add_option("--admin-key", options.serve.service.admin_key,
                  "Key for what changes the service (scaling, recordings), instead of the API key. "
                  "Better set WIDEEP_ADMIN_KEY")
      .check(complain_of_option);
  command.add_option("--api-key-file", options.api_key_file, "File whose first line is the API key")
      .path();
  command
      .add_option("--admin-key-file", options.admin_key_file,
                  "File whose first line is the admin key")
      .path();
  add_grace_option(command, &options.serve.grace_seconds);
  add_http_limit_options(command, &options.serve.http);
  command
      .add_option("--cors-origin", options.serve.http.cors_origins,
                  "Origin whose web pages may use the server from a browser, as "
                  "https://example.org, or * for all; repeat it for more. Without it, none may")
      .one_value_each();  // what follows may be MODEL
  command.add_flag("--no-ui", options.no_ui,
                   "Without pages: neither the chat page, /, nor the dashboard");
  command.add_option("--served-model-name", options.serve.service.model,
                     "Name of the model that clients use; empty: the name of its directory");
  command
      .add_option("--max-queue", options.serve.service.max_queue,
                  "Most answers that run or wait; more requests are refused with 429")
      .range(1, 1 << 20)
      .show_default();
  command
      .add_option("--per-request-spec-decode-metrics", options.draft_metrics,
                  "What speculation has done for a request, in its reply")
      .one_of({"none", "summary", "detailed"})
      .show_default();
  command
      .add_option("--metrics-names", options.metrics_names,
                  "Whose names the metrics have: wideep's, those of vLLM that dashboards for it "
                  "ask for, or both")
      .one_of({"wideep", "vllm", "both"})
      .show_default();
  command.add_flag(
      "--enable-return-routed-experts", options.serve.run.routed_experts,
      "Return the experts that the router has chosen for each token, as "
      "routed_experts of each choice of a whole reply; requests then share no pages of "
      "the KV cache");
  command
      .add_option("--stream-interval", options.stream_interval,
                  "Tokens between the parts of a streamed answer; the first "
                  "token comes at once (default: stream_interval of --config, else 1)")
      .range(1, 1 << 20);
  server::ResponseStoreLimits& stored = options.serve.service.stored_responses;
  command
      .add_option("--max-stored-responses", stored.count,
                  "Most responses that are kept for clients that say store: true; the oldest make "
                  "room")
      .range(uint64_t{0}, uint64_t{1} << 20)
      .show_default();
  command
      .add_option("--max-stored-response-bytes", stored.bytes,
                  "Most bytes of them together, as JSON text")
      .range(uint64_t{0}, uint64_t{1} << 36)
      .show_default();
}

void add_kv_event_options(command_line::Command command, Options& options) {
  command.add_option("--kv-events-config", options.kv_events,
                     "Tell routers which prompts' pages are in the KV cache: vLLM's JSON, as "
                     "{\"enable_kv_cache_events\": true, \"endpoint\": \"tcp://*:5557\"}");
}

void add_sharing_options(command_line::Command command, Options& options) {
  command
      .add_option(
          "--role", options.role,
          "What the server prefers to do behind a router that separates prefill and decode: "
          "it shares the pages of its prompts with other servers then (default: both)")
      .one_of({"prefill", "decode", "both"});
  command.add_option(
      "--page-address", options.page_address,
      "Where other servers take pages from, as HOST[:PORT]; the network there must be "
      "private (default: the address of --host, or without --page-key-file 127.0.0.1; any free "
      "port)");
  command
      .add_option(
          "--page-key-file", options.page_key_file,
          "File whose first line is a secret of at least 16 bytes, the same for all servers "
          "that take pages from each other; without it only servers of this machine do")
      .path();
}

void add_cluster_options(command_line::Command command, Options& options) {
  command.add_option("--disagg-cluster-uri", options.cluster_uri,
                     "Tell an etcd, etcd://host:port, that this server is there, for the proxy "
                     "wideep disaggregated; wins over disagg_cluster in --config");
  command.add_option("--disagg-cluster-name", options.cluster_name,
                     "Which of the clusters of that etcd the server belongs to");
}

void add_prompt_file_options(command_line::Command command, Options& options) {
  command
      .add_option("--prompt-cache-export-dir", options.serve.service.export_dir,
                  "Directory of the archives that POST /v1/cache/export writes and "
                  "/v1/cache/import reads; without it they are refused")
      .path();
  command
      .add_option("--prompt-cache-warm", options.serve.warm_file,
                  "File with a prompt on each line, {\"prompt\": ...} or {\"messages\": [...]}, "
                  "which the server computes when it is ready, behind its clients")
      .path();
}

void add_parser_options(command_line::Command command, Options& options) {
  server::ParserNames& parsers = options.serve.parsers;
  command
      .add_option(
          "--tool-call-parser", parsers.tool_calls,
          "How the model writes calls of tools, by vLLM's names (hermes, qwen3_coder, ...); "
          "auto: as its chat template shows; none: calls stay text")
      .show_default();
  command
      .add_option("--reasoning-parser", parsers.reasoning,
                  "How the model marks its reasoning, by vLLM's names (qwen3, deepseek_r1, ...); "
                  "auto: as its chat template shows; none: it stays in the content")
      .show_default();
}

void add_node_options(command_line::Command command, Options& options) {
  server::NodeOptions& nodes = options.serve.nodes;
  command
      .add_option("--nnodes", nodes.num_nodes,
                  "Nodes over which the ranks are spread evenly; the same command, with another "
                  "--node-rank, runs on each")
      .range(1, 1024)
      .show_default();
  command.add_option("--node-rank", nodes.node,
                     "Which node this is, from 0, which serves; -1: SLURM_PROCID says it");
  command.add_option("--master-addr", nodes.address,
                     "Address of node 0 on the network between nodes, which must be private: what "
                     "nodes say to each other is not encrypted");
  command
      .add_option("--cluster-key-file", nodes.key_file,
                  "File with a secret of at least 16 bytes, the same on all nodes, which they "
                  "prove to each other; needed unless --master-addr is a loopback address")
      .path();
  command.add_flag("--insecure-cluster", nodes.insecure,
                   "Without a key file: let everybody take part who reaches the nodes' ports");
  command.add_option("--master-port", nodes.port, "Port of node 0 for the other nodes")
      .range(1, 65535)
      .show_default();
}

void add_record_options(command_line::Command command, Options& options) {
  command
      .add_option("--expert-statistic-iterations", options.serve.service.recorder.max_iterations,
                  "Iterations that a recording keeps which clients start with "
                  "/start_expert_distribution_record: the last ones. Such recordings need "
                  "--expert-statistic-path")
      .range(1, 1 << 24)
      .show_default();
}

void add_engine_options(command_line::Command command, Options& options, bool needs_model) {
  add_model_option(command, &options.serve.run.model_dir, needs_model);
  add_generation_config_option(command, &options.serve.generation_config);
  add_rank_run_options(command, &options.ranks);
  add_prompt_cache_options(command, &options.prompts_kept);
  command
      .add_option(
          "--on-rank-loss", options.on_rank_loss,
          "When a rank dies: recover: the others go on with its requests, and it is started "
          "again; fail: the server ends")
      .one_of({"recover", "fail"})
      .show_default();
  command
      .add_option("--start-ranks", options.serve.run.start_ranks,
                  "Ranks to start with, of those of --config or --ranks; POST /scale_elastic_ep "
                  "changes their number. 0: all")
      .range(0, 1024)
      .show_default();
}

std::shared_ptr<Options> add_options(command_line::Command command, bool needs_model) {
  auto options = std::make_shared<Options>();
  add_engine_options(command, *options, needs_model);
  add_node_options(command, *options);
  add_address_options(command, *options);
  add_kv_event_options(command, *options);
  add_sharing_options(command, *options);
  add_cluster_options(command, *options);
  add_prompt_file_options(command, *options);
  add_parser_options(command, *options);
  add_record_options(command, *options);
  add_log_options(command, &options->log);
  add_options_file_option(command, &options->options_file);
  return options;
}

}  // namespace

std::shared_ptr<const server::ServeOptions> add_serve_options(command_line::Command command) {
  const std::shared_ptr<Options> options = add_options(command, /*needs_model=*/false);
  return {options, &options->serve};
}

void add_serve_command(command_line::Command app, const Started& started, Status* status) {
  const command_line::Command command =
      app.add_command("serve", "Serve a model over HTTP, with OpenAI's endpoints");
  const std::shared_ptr<Options> options = add_options(command, /*needs_model=*/true);
  command.on_run([options, &started, status] { *status = run(*options, started); });
}

}  // namespace wideep::tools
