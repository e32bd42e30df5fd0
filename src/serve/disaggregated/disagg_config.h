// SPDX-License-Identifier: Apache-2.0
//
// TensorRT-LLM's disagg_config.yaml: a proxy, and the servers behind it.
//
//   hostname: localhost
//   port: 8000
//   max_num_tokens: 8192              # any other key is one of the workers of both sections
//   context_servers:
//     num_instances: 2
//     urls: ["node1:8001", "node2:8001"]
//     router: {type: kv_cache_aware}
//     tensor_parallel_size: 2         # and this one of these
//   generation_servers:
//     num_instances: 1
//     urls: ["node3:8002"]
//   conditional_disagg_config: {max_local_prefill_length: 512}
//
// A section is what a worker of it reads with `--config disagg_config.yaml:context_servers`. A key
// beside the sections that contradicts one of a section is refused, with both values and lines, as
// is an unknown key. With disagg_cluster servers come and go, and urls are not read, as there.
//
// Other than there: num_instances is as many as urls, if it is left out; the default of
// router.type is kv_cache_aware and of schedule_style generation_first; conditional_disagg_config
// also has Dynamo's eff_isl_threshold and eff_isl_ratio_threshold.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "parallel/parallel_config.h"
#include "server/disaggregation_options.h"
#include "server/router_options.h"
#include "wideep/status.h"

namespace wideep::disaggregated {

// Of one kind of servers.
struct ServerSection {
  int num_instances = 0;
  std::vector<server::ReplicaAddress> urls;  // of each instance; empty: none are said
  parallel::ParallelConfig workers;
  std::string text;  // what a worker reads, with what it inherits, as YAML
};

struct DisaggConfig {
  std::string name;  // the file, for messages
  std::string hostname = "localhost";
  int port = 8000;
  ServerSection context, generation;
  server::DisaggregationOptions options;
  std::optional<parallel::DisaggCluster> cluster;
  std::string traces_endpoint;     // otlp_config.otlp_traces_endpoint; "": none is said
  std::string model;               // of the workers that disaggregated_mpi_worker starts; "": none
  std::vector<std::string> notes;  // one line for each key that has no effect

  // Those of the sections. A server in both has both roles. Empty with `cluster`.
  std::vector<server::RouterMember> members() const;
};

// Errors (invalid input): the file cannot be read; as above; no server that could generate.
Result<DisaggConfig> read_disagg_config(const std::string& file);
Result<DisaggConfig> parse_disagg_config(const std::string& text, const std::string& name);

// What `wideep disaggregated --check` prints: the proxy, its servers, and what the workers of each
// section read.
std::string describe(const DisaggConfig& config);

}  // namespace wideep::disaggregated
