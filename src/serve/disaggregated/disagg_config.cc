// SPDX-License-Identifier: Apache-2.0
//
// The file is read three times: for the proxy, and for the workers of each section as
// parallel_config.cc reads them with FILE:PART. So a worker that is started with its part of the
// file can never see something else than the proxy has checked.
#include "disaggregated/disagg_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/printable.h"
#include "base/spelling.h"
#include "base/try.h"
#include "formats/files.h"
#include "formats/yaml.h"
#include "parallel/config_keys.h"

namespace wideep::disaggregated {
namespace {

using engine::Role;
using formats::YamlMap;
using server::PlacementRule;
using server::RouterMember;

constexpr const char* kContext = "context_servers";
constexpr const char* kGeneration = "generation_servers";
constexpr formats::IntegerRange kTokens{.min = 0, .max = int64_t{1} << 32};

template <typename Value>
using Names = std::initializer_list<std::pair<const char*, Value>>;

// Reads one of several names. Returns `fallback` if the key is absent or wrong.
template <typename Value>
Value take_name(YamlMap& map, const char* key, Value fallback, Names<Value> names) {
  if (!map.has(key)) return fallback;
  const std::string found = map.string_or(key, "");
  std::string known;
  for (const auto& [name, value] : names) {
    if (found == name) return value;
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  map.complain(key,
               fmt::format("expected one of {}, found '{}'", known, base::printable(found, 60)));
  return fallback;
}

void note(std::vector<std::string>* notes, const std::string& key, const char* why) {
  notes->push_back(fmt::format("{} has no effect: {}", key, why));
}

// Arguments of TensorRT-LLM's routers, of whatever type.
PlacementRule take_router(YamlMap router, const std::string& section,
                          std::vector<std::string>* notes) {
  constexpr const char* kConversation = "conversation";
  const bool is_conversation = router.string_or("type", "") == kConversation;
  const auto rule = take_name<PlacementRule>(router, "type", PlacementRule::kKvCacheAware,
                                             {{"round_robin", PlacementRule::kRoundRobin},
                                              {"load_balancing", PlacementRule::kLoadBalancing},
                                              {"kv_cache_aware", PlacementRule::kKvCacheAware},
                                              {kConversation, PlacementRule::kKvCacheAware}});
  if (is_conversation) {
    notes->push_back(section +
                     ".router.type conversation is kv_cache_aware here: a conversation "
                     "goes where the pages of its beginning are");
  }
  struct Argument {
    const char* key;
    const char* why;
  };
  for (const Argument& each :
       {Argument{"use_tokens", "work is always counted in tokens to compute"},
        Argument{"tokens_per_block", "pages have 64 tokens"},
        Argument{"custom_tokenizer", "servers say the tokens of prompts themselves"},
        Argument{"max_batch_size", "servers say how busy they are"},
        Argument{"max_num_tokens", "servers say how busy they are"}}) {
    if (router.has(each.key)) note(notes, fmt::format("{}.router.{}", section, each.key), each.why);
  }
  router.refuse_unknown_keys();
  return rule;
}

// "host:port" of each; http:// before it is no mistake.
std::vector<server::ReplicaAddress> take_urls(YamlMap& section) {
  std::vector<server::ReplicaAddress> urls;
  if (!section.has("urls")) return urls;
  for (const std::string& text : section.texts("urls")) {
    const auto address = server::parse_replica(text);
    if (!address.ok()) {
      section.complain("urls", fmt::format("expected host:port of each server, found '{}'",
                                           base::printable(text, 60)));
      return {};
    }
    const bool is_there =
        std::ranges::any_of(urls, [&](const auto& each) { return each.url() == address->url(); });
    if (is_there) section.complain("urls", fmt::format("{} is there twice", address->url()));
    urls.push_back(*address);
  }
  return urls;
}

// The proxy's keys of a section. Those of workers are read by take_workers().
ServerSection take_section(YamlMap& root, const char* name, PlacementRule* rule,
                           std::vector<std::string>* notes) {
  ServerSection section;
  if (!root.has(name)) return section;
  YamlMap map = root.map(name);
  section.urls = take_urls(map);
  const int num_urls = static_cast<int>(section.urls.size());
  section.num_instances = static_cast<int>(
      map.integer_or("num_instances", map.has("urls") ? num_urls : 1, {.min = 0, .max = 1 << 16}));
  if (map.has("urls") && section.num_instances != num_urls) {
    map.complain("num_instances", fmt::format("expected {}, as many as there are urls, found {}",
                                              num_urls, section.num_instances));
  }
  if (map.has("router")) *rule = take_router(map.map("router"), name, notes);
  return section;
}

void take_conditions(YamlMap map, server::DisaggregationOptions* options) {
  const auto take = [&](const char* key) -> std::optional<int64_t> {
    if (!map.has(key)) return {};
    return map.integer(key, kTokens);
  };
  options->max_local_prefill_length = take("max_local_prefill_length");
  options->eff_isl_threshold = take("eff_isl_threshold");
  if (map.has("eff_isl_ratio_threshold")) {
    options->eff_isl_ratio_threshold =
        map.number("eff_isl_ratio_threshold", {.min = 0.0, .max = 1.0});
  }
  map.refuse_unknown_keys();
}

// Keys of TensorRT-LLM's proxy that are not missed.
void take_idle_keys(YamlMap& root, std::vector<std::string>* notes) {
  constexpr const char* kFigures =
      "figures are always kept: GET /metrics here, GET /perf_metrics at each server";
  constexpr const char* kBodies = "the proxy passes bodies on as they are";
  if (root.boolean_or("return_perf_metrics", false)) note(notes, "return_perf_metrics", kFigures);
  if (root.integer_or("perf_metrics_max_requests", 0, {.min = 0}) != 0) {
    note(notes, "perf_metrics_max_requests", kFigures);
  }
  if (!root.string_or("perf_metrics_output_dir", "").empty()) {
    note(notes, "perf_metrics_output_dir", kFigures);
  }
  if (root.has("node_id")) {
    root.integer("node_id", {.min = 0, .max = 255});
    note(notes, "node_id", "ids of requests are drawn at random from 53 bits");
  }
  if (root.integer_or("num_workers", 1, {.min = 1}) != 1) {
    note(notes, "num_workers", "the proxy is one process, which serves all connections");
  }
  if (!root.string_or("disagg_coordinator_url", "").empty()) {
    note(notes, "disagg_coordinator_url",
         "each proxy asks the servers themselves how busy they are");
  }
  if (root.boolean_or("allow_request_chat_template", false)) {
    note(notes, "allow_request_chat_template", "requests may always bring a chat_template");
  }
  for (const char* key : {"gen_strip_message_history", "gen_tokids_ctxbytes"}) {
    if (root.boolean_or(key, false)) note(notes, key, kBodies);
  }
}

// A key that neither the proxy knows nor a worker. Here, and not where the sections inherit it, the
// nearest name may be one of either.
void refuse_unknown_keys(YamlMap& root) {
  std::vector<std::string> known(parallel::proxy_keys().begin(), parallel::proxy_keys().end());
  for (const parallel::ConfigKey& key : parallel::config_keys()) {
    if (key.path.find('.') == key.path.npos) known.emplace_back(key.path);
  }
  for (const std::string& key : root.keys()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    root.complain(key, fmt::format("unknown key, neither of the proxy nor of its workers{}",
                                   base::did_you_mean(key, known)));
  }
}

DisaggConfig take_config(YamlMap& root) {
  DisaggConfig config;
  config.hostname = root.string_or("hostname", config.hostname);
  config.port = static_cast<int>(root.integer_or("port", config.port, {.min = 0, .max = 65535}));
  config.model = root.string_or("model", "");
  server::DisaggregationOptions& options = config.options;
  options.max_retries = static_cast<int>(
      root.integer_or("max_retries", options.max_retries, {.min = 0, .max = 1000}));
  options.style = take_name<server::ScheduleStyle>(
      root, "schedule_style", options.style,
      {{"context_first", server::ScheduleStyle::kContextFirst},
       {"generation_first", server::ScheduleStyle::kGenerationFirst}});
  config.context = take_section(root, kContext, &options.context_rule, &config.notes);
  config.generation = take_section(root, kGeneration, &options.generation_rule, &config.notes);
  if (root.has("conditional_disagg_config")) {
    take_conditions(root.map("conditional_disagg_config"), &options);
  }
  if (root.has("otlp_config")) {
    YamlMap traces = root.map("otlp_config");
    config.traces_endpoint = traces.string_or("otlp_traces_endpoint", "");
    traces.refuse_unknown_keys();
  }
  if (root.has("disagg_cluster")) {
    config.cluster = parallel::take_disagg_cluster(root.map("disagg_cluster"));
  }
  take_idle_keys(root, &config.notes);
  refuse_unknown_keys(root);
  return config;
}

// What the workers of a section read, and what a worker would say of it.
Status take_workers(const std::string& text, const std::string& name, const char* part,
                    ServerSection* section) {
  WIDEEP_TRY_ASSIGN(section->workers, parallel::parse_parallel_config(text, name, part));
  WIDEEP_TRY_ASSIGN(formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  WIDEEP_TRY(document.enter(part));
  document.inherit(parallel::proxy_keys());
  section->text = document.text();
  return {};
}

// Between the sections, after errors in single keys.
Status check_sections(const DisaggConfig& config) {
  if (config.cluster) return {};
  for (const auto& [name, section] :
       {std::pair(kContext, &config.context), std::pair(kGeneration, &config.generation)}) {
    if (section->num_instances > 0 && section->urls.empty()) {
      return invalid_input(fmt::format(
          "{}: {}.urls: missing; expected host:port of each of {} instances, or disagg_cluster, "
          "where servers say themselves that they are there",
          config.name, name, section->num_instances));
    }
  }
  if (config.generation.num_instances == 0) {
    return invalid_input(
        fmt::format("{}: generation_servers: expected at least one server, which "
                    "answers; found none",
                    config.name));
  }
  const std::vector<RouterMember> members = config.members();
  const auto both = std::ranges::find(members, Role::kBoth, &RouterMember::role);
  const auto &a = config.context.workers.sizes, &b = config.generation.workers.sizes;
  if (both != members.end() && std::tie(a.tp, a.pp, a.cp) != std::tie(b.tp, b.pp, b.cp)) {
    return invalid_input(
        fmt::format("{}: {} is in both sections, with other sizes (tp·pp·cp {}·{}·{} and "
                    "{}·{}·{}): one server has one configuration",
                    config.name, both->address.url(), a.tp, a.pp, a.cp, b.tp, b.pp, b.cp));
  }
  return {};
}

const char* name_of(PlacementRule rule) {
  switch (rule) {
    case PlacementRule::kRoundRobin:
      return "round_robin";
    case PlacementRule::kLoadBalancing:
      return "load_balancing";
    case PlacementRule::kKvCacheAware:
      return "kv_cache_aware";
  }
  return "";
}

std::string conditions_text(const server::DisaggregationOptions& options) {
  std::string text;
  const auto add = [&](const char* name, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, *value);
  };
  add("max_local_prefill_length", options.max_local_prefill_length);
  add("eff_isl_threshold", options.eff_isl_threshold);
  add("eff_isl_ratio_threshold", options.eff_isl_ratio_threshold);
  return text.empty() ? "by predicted cost" : text;
}

std::string section_text(const char* name, const ServerSection& section, PlacementRule rule) {
  const parallel::ParallelSizes& sizes = section.workers.sizes;
  std::string text =
      fmt::format("\n{}: {}, router {}\n", name, section.num_instances, name_of(rule));
  if (section.text.empty()) return text;
  text += fmt::format("  ranks of each: {} (tp {}, pp {}, cp {})\n", sizes.tp * sizes.pp * sizes.cp,
                      sizes.tp, sizes.pp, sizes.cp);
  for (const server::ReplicaAddress& each : section.urls) text += "  " + each.url() + "\n";
  text += "  --config of a worker:\n";
  for (size_t begin = 0; begin < section.text.size();) {
    const size_t end = std::min(section.text.find('\n', begin), section.text.size());
    text += "    " + section.text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return text;
}

}  // namespace

std::vector<RouterMember> DisaggConfig::members() const {
  std::vector<RouterMember> members;
  if (cluster) return members;
  for (const auto& each : context.urls) members.push_back({each, Role::kPrefill});
  for (const auto& each : generation.urls) {
    const auto same = std::ranges::find_if(
        members, [&](const RouterMember& member) { return member.address.url() == each.url(); });
    if (same == members.end()) {
      members.push_back({each, Role::kDecode});
    } else {
      same->role = Role::kBoth;
    }
  }
  return members;
}

Result<DisaggConfig> read_disagg_config(const std::string& file) {
  WIDEEP_TRY_ASSIGN(const std::string text, formats::read_file(file));
  return parse_disagg_config(text, file);
}

Result<DisaggConfig> parse_disagg_config(const std::string& text, const std::string& name) {
  WIDEEP_TRY_ASSIGN(const formats::YamlDocument document, formats::YamlDocument::parse(text, name));
  YamlMap root = document.root();
  DisaggConfig config = take_config(root);
  WIDEEP_TRY(document.status());
  config.name = name;
  const bool has_context = root.has(kContext), has_generation = root.has(kGeneration);
  if (has_context) WIDEEP_TRY(take_workers(text, name, kContext, &config.context));
  if (has_generation) WIDEEP_TRY(take_workers(text, name, kGeneration, &config.generation));
  WIDEEP_TRY(check_sections(config));
  return config;
}

std::string describe(const DisaggConfig& config) {
  const server::DisaggregationOptions& options = config.options;
  std::string text = fmt::format(
      "proxy: http://{}:{}, {}, max_retries {}\nprompts are computed where: {}\n", config.hostname,
      config.port,
      options.style == server::ScheduleStyle::kContextFirst ? "context_first" : "generation_first",
      options.max_retries, conditions_text(options));
  if (const auto& cluster = config.cluster) {
    text += fmt::format(
        "servers: those of cluster '{}' at etcd://{}, at least {} context and {} generation "
        "servers\n",
        cluster->name, cluster->etcd, cluster->min_context_servers,
        cluster->min_generation_servers);
  }
  return text + section_text(kContext, config.context, options.context_rule) +
         section_text(kGeneration, config.generation, options.generation_rule);
}

}  // namespace wideep::disaggregated
