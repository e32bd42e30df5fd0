// SPDX-License-Identifier: Apache-2.0
//
// TensorRT-LLM's disagg_cluster: servers of disaggregated serving that come and go, and where they
// say so. The proxy's file has it, and each worker's, with the same uri and name.
//
//   disagg_cluster:
//     cluster_uri: etcd://10.0.0.1:2379
//     cluster_name: west
//     minimal_instances: {context_servers: 1, generation_servers: 2}
//
// Thread safety: plain values; pure functions.
#pragma once

#include <string>

#include "formats/yaml.h"
#include "wideep/status.h"

namespace wideep::parallel {

struct DisaggCluster {
  std::string etcd;  // "host:port" of etcd's HTTP gateway, from cluster_uri etcd://host:port
  std::string name;  // clusters of other names may share the etcd
  // The proxy answers 503 until it has seen so many.
  int min_context_servers = 1;
  int min_generation_servers = 1;
  int heartbeat_seconds = 5;
  int inactive_seconds = 10;  // after which a server without a heartbeat is gone; more than these
};

// The "host:port" of etcd://host:port. Errors (invalid input): anything else; the message begins
// with "expected".
Result<std::string> parse_cluster_uri(const std::string& uri);

// Errors are those of the document.
DisaggCluster take_disagg_cluster(formats::YamlMap map);

}  // namespace wideep::parallel
