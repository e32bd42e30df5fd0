// SPDX-License-Identifier: Apache-2.0
//
// Lines of refusals are held word for word, because a user corrects a file by them.
#include "disaggregated/disagg_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace wideep::disaggregated {
namespace {

using engine::Role;
using server::RouterMember;
using testing::ElementsAre;
using testing::HasSubstr;

DisaggConfig read(const std::string& text) {
  auto config = parse_disagg_config(text, "d.yaml");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *std::move(config) : DisaggConfig();
}

std::string said(const std::string& text) {
  return std::string(parse_disagg_config(text, "d.yaml").status().message());
}

std::vector<std::string> servers(const DisaggConfig& config) {
  std::vector<std::string> servers;
  for (const RouterMember& each : config.members()) {
    servers.push_back(each.address.url() + " " + std::string(engine::name_of(each.role)));
  }
  return servers;
}

constexpr const char* kServers =
    "context_servers: {urls: ['a:1']}\n"
    "generation_servers: {urls: ['b:2']}\n";

// Of the form of TensorRT-LLM's own example: workers' keys at the top and in both sections.
TEST(DisaggConfig, ReadsWhatTensorRtLlmReads) {
  const DisaggConfig config = read(R"(
hostname: 0.0.0.0
port: 8123
model: TinyLlama/TinyLlama-1.1B-Chat-v1.0
backend: pytorch
max_retries: 3
schedule_style: context_first
max_num_tokens: 512
conditional_disagg_config:
  max_local_prefill_length: 100
otlp_config: {otlp_traces_endpoint: "http://localhost:4318/v1/traces"}
context_servers:
  num_instances: 2
  tensor_parallel_size: 2
  pipeline_parallel_size: 1
  kv_cache_config:
    free_gpu_memory_fraction: 0.2
  cache_transceiver_config: {backend: DEFAULT}
  urls:
    - "localhost:8001"
    - "localhost:8002"
  router: {type: round_robin}
generation_servers:
  num_instances: 1
  tensor_parallel_size: 1
  cache_transceiver_config: {backend: DEFAULT}
  urls: ["localhost:8003"]
  router: {type: load_balancing, use_tokens: true}
)");
  EXPECT_EQ(config.hostname, "0.0.0.0");
  EXPECT_EQ(config.port, 8123);
  EXPECT_EQ(config.model, "TinyLlama/TinyLlama-1.1B-Chat-v1.0");
  EXPECT_EQ(config.options.max_retries, 3);
  EXPECT_EQ(config.options.style, server::ScheduleStyle::kContextFirst);
  EXPECT_EQ(config.options.max_local_prefill_length, 100);
  EXPECT_EQ(config.options.context_rule, server::PlacementRule::kRoundRobin);
  EXPECT_EQ(config.options.generation_rule, server::PlacementRule::kLoadBalancing);
  EXPECT_EQ(config.traces_endpoint, "http://localhost:4318/v1/traces");
  EXPECT_EQ(config.context.num_instances, 2);
  EXPECT_EQ(config.context.workers.sizes.tp, 2);
  EXPECT_EQ(config.context.workers.max_num_tokens, 512);
  EXPECT_EQ(config.generation.workers.max_num_tokens, 512);
  EXPECT_EQ(config.generation.workers.sizes.tp, 1);
  EXPECT_THAT(servers(config),
              ElementsAre("http://localhost:8001 prefill", "http://localhost:8002 prefill",
                          "http://localhost:8003 decode"));
  EXPECT_THAT(
      config.notes,
      ElementsAre(HasSubstr("generation_servers.router.use_tokens has no effect: work is")));
}

TEST(DisaggConfig, HasDefaults) {
  const DisaggConfig config = read(kServers);
  EXPECT_EQ(config.hostname, "localhost");
  EXPECT_EQ(config.port, 8000);
  EXPECT_EQ(config.options.max_retries, 1);
  EXPECT_EQ(config.options.style, server::ScheduleStyle::kGenerationFirst);
  EXPECT_EQ(config.options.context_rule, server::PlacementRule::kKvCacheAware);
  EXPECT_FALSE(config.options.max_local_prefill_length);
  EXPECT_FALSE(config.cluster);
  EXPECT_EQ(config.context.num_instances, 1);
  EXPECT_TRUE(config.notes.empty());
}

TEST(DisaggConfig, AServerMayDoBoth) {
  EXPECT_THAT(servers(read("context_servers: {urls: ['a:1', 'b:2']}\n"
                           "generation_servers: {urls: ['http://b:2/', 'c:3']}\n")),
              ElementsAre("http://a:1 prefill", "http://b:2 both", "http://c:3 decode"));
  EXPECT_EQ(said("context_servers: {urls: ['a:1'], tensor_parallel_size: 2}\n"
                 "generation_servers: {urls: ['a:1']}\n"),
            "d.yaml: http://a:1 is in both sections, with other sizes (tp·pp·cp 2·1·1 and "
            "1·1·1): one server has one configuration");
}

TEST(DisaggConfig, AnsweringServersAloneAreEnough) {
  EXPECT_THAT(servers(read("context_servers: {num_instances: 0}\n"
                           "generation_servers: {urls: ['a:1']}\n")),
              ElementsAre("http://a:1 decode"));
  EXPECT_THAT(servers(read("generation_servers: {urls: ['a:1']}\n")),
              ElementsAre("http://a:1 decode"));
}

TEST(DisaggConfig, DynamosRulesStandBesideTheOther) {
  const DisaggConfig config = read(std::string(kServers) +
                                   "conditional_disagg_config: {max_local_prefill_length: 7, "
                                   "eff_isl_threshold: 4096, eff_isl_ratio_threshold: 0.6}\n");
  EXPECT_EQ(config.options.max_local_prefill_length, 7);
  EXPECT_EQ(config.options.eff_isl_threshold, 4096);
  EXPECT_EQ(config.options.eff_isl_ratio_threshold, 0.6);
}

TEST(DisaggConfig, InAClusterServersSayThatTheyAreThere) {
  const DisaggConfig config = read(
      "disagg_cluster:\n  cluster_uri: etcd://127.0.0.1:2379\n  cluster_name: c\n"
      "  minimal_instances: {context_servers: 1, generation_servers: 2}\n"
      "generation_servers: {router: {type: conversation}, max_batch_size: 4}\n");
  ASSERT_TRUE(config.cluster);
  EXPECT_EQ(config.cluster->min_generation_servers, 2);
  EXPECT_THAT(config.members(), ElementsAre());
  EXPECT_THAT(config.notes, ElementsAre(HasSubstr("conversation is kv_cache_aware here")));
  // A worker of the file has the cluster, too.
  EXPECT_EQ(config.generation.workers.disagg_cluster->etcd, "127.0.0.1:2379");
}

TEST(DisaggConfig, IdleKeysHaveALineEach) {
  const DisaggConfig config =
      read(std::string(kServers) +
           "return_perf_metrics: true\nperf_metrics_max_requests: 10\nnode_id: 7\nnum_workers: 4\n"
           "disagg_coordinator_url: 'http://h:1'\nallow_request_chat_template: true\n"
           "gen_strip_message_history: true\ngen_tokids_ctxbytes: true\n"
           "perf_metrics_output_dir: /tmp/x\n");
  EXPECT_THAT(
      config.notes,
      ElementsAre(HasSubstr("return_perf_metrics has no effect: figures are always kept"),
                  HasSubstr("perf_metrics_max_requests"), HasSubstr("perf_metrics_output_dir"),
                  HasSubstr("node_id"), HasSubstr("num_workers"),
                  HasSubstr("disagg_coordinator_url"), HasSubstr("allow_request_chat_template"),
                  HasSubstr("gen_strip_message_history"), HasSubstr("gen_tokids_ctxbytes")));
}

TEST(DisaggConfig, RefusesWithTheLine) {
  struct Case {
    const char* text;  // after kServers, two lines, or alone if it has servers
    const char* message;
  };
  for (const auto& [text, message] : std::initializer_list<Case>{
           {"hostnam: a\n",
            "d.yaml:3: hostnam: unknown key, neither of the proxy nor of its workers; did you mean "
            "'hostname'?"},
           {"max_num_token: 8\n",
            "d.yaml:3: max_num_token: unknown key, neither of the proxy nor of its workers; did "
            "you mean 'max_num_tokens'?"},
           {"port: 70000\n", "d.yaml:3: port: expected an integer from 0 to 65535, found '70000'"},
           {"schedule_style: both\n",
            "d.yaml:3: schedule_style: expected one of context_first, generation_first, found "
            "'both'"},
           {"node_id: 256\n", "d.yaml:3: node_id: expected an integer from 0 to 255, found '256'"},
           {"conditional_disagg_config: {max_local: 1}\n",
            "d.yaml:3: conditional_disagg_config.max_local: unknown key; known keys: "
            "eff_isl_ratio_threshold, eff_isl_threshold, max_local_prefill_length"},
           {"otlp_config: {endpoint: x}\n",
            "d.yaml:3: otlp_config.endpoint: unknown key; known keys: otlp_traces_endpoint"},
           {"disagg_cluster: {cluster_uri: 'http://h:8000'}\n",
            "d.yaml:3: disagg_cluster.cluster_uri: expected etcd://host:port, found "
            "'http://h:8000': the proxy keeps no list itself; start an etcd, or list the servers "
            "as urls of context_servers and generation_servers"}}) {
    EXPECT_EQ(said(std::string(kServers) + text), message);
  }
  for (const auto& [text, message] : std::initializer_list<Case>{
           {"generation_servers:\n  num_instances: 2\n  urls: ['a:1']\n",
            "d.yaml:2: generation_servers.num_instances: expected 1, as many as there are urls, "
            "found 2"},
           {"generation_servers:\n  urls: ['a:1', 'a']\n",
            "d.yaml:2: generation_servers.urls: expected host:port of each server, found 'a'"},
           {"generation_servers:\n  urls: ['a:1', 'http://a:1']\n",
            "d.yaml:2: generation_servers.urls: http://a:1 is there twice"},
           {"generation_servers:\n  urls: ['a:1']\n  router: {type: random}\n",
            "d.yaml:3: generation_servers.router.type: expected one of round_robin, "
            "load_balancing, kv_cache_aware, conversation, found 'random'"},
           {"max_batch_size: 8\ngeneration_servers:\n  urls: ['a:1']\n  max_batch_size: 16\n",
            "d.yaml:4: generation_servers.max_batch_size: '16' contradicts line 1, where "
            "max_batch_size is '8' for all parts of the file; leave it out at one of the two"},
           {"generation_servers:\n  urls: ['a:1']\n  tensor_parallel_size: x\n",
            "d.yaml:3: generation_servers.tensor_parallel_size: expected an integer from 1 to "
            "65536, found 'x'"},
           {"generation_servers: {num_instances: 2}\n",
            "d.yaml: generation_servers.urls: missing; expected host:port of each of 2 instances, "
            "or disagg_cluster, where servers say themselves that they are there"},
           {"context_servers: {urls: ['a:1']}\n",
            "d.yaml: generation_servers: expected at least one server, which answers; found none"},
           {"",
            "d.yaml: generation_servers: expected at least one server, which answers; found "
            "none"}}) {
    EXPECT_EQ(said(text), message);
  }
}

TEST(DisaggConfig, IsDescribedAsItIsMerged) {
  const std::string text =
      describe(read("max_num_tokens: 64\nport: 9000\n"
                    "context_servers: {urls: ['a:1'], tensor_parallel_size: 2}\n"
                    "generation_servers: {urls: ['b:2']}\n"));
  EXPECT_THAT(text, HasSubstr("proxy: http://localhost:9000, generation_first, max_retries 1\n"
                              "prompts are computed where: by predicted cost\n"));
  EXPECT_THAT(text, HasSubstr("context_servers: 1, router kv_cache_aware\n"
                              "  ranks of each: 2 (tp 2, pp 1, cp 1)\n  http://a:1\n"));
  EXPECT_THAT(text, HasSubstr("    tensor_parallel_size: 2\n    max_num_tokens: 64\n"));
  EXPECT_THAT(text, HasSubstr("generation_servers: 1"));
}

}  // namespace
}  // namespace wideep::disaggregated
