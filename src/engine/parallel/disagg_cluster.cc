// SPDX-License-Identifier: Apache-2.0
#include "parallel/disagg_cluster.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "base/printable.h"

namespace wideep::parallel {
namespace {

constexpr std::string_view kEtcd = "etcd://";
constexpr int kMaxServers = 1 << 16;
constexpr int kMaxSeconds = 3600;

bool is_port(std::string_view text) {
  int port = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), port);
  return read.ec == std::errc() && read.ptr == text.data() + text.size() && port > 0 &&
         port < 65536;
}

int take_count(formats::YamlMap& map, const char* key, int fallback, int min, int max) {
  return static_cast<int>(map.integer_or(key, fallback, {.min = min, .max = max}));
}

}  // namespace

Result<std::string> parse_cluster_uri(const std::string& uri) {
  std::string_view rest = uri;
  if (rest.starts_with(kEtcd)) {
    rest.remove_prefix(kEtcd.size());
    while (rest.ends_with('/')) rest.remove_suffix(1);
    const size_t colon = rest.rfind(':');
    const bool has_host = colon != rest.npos && colon > 0 && rest.find('/') == rest.npos;
    if (has_host && is_port(rest.substr(colon + 1))) return std::string(rest);
  }
  const bool is_http = uri.starts_with("http://") || uri.starts_with("https://");
  return invalid_input(
      fmt::format("expected etcd://host:port, found '{}'{}", base::printable(uri, 60),
                  is_http ? ": the proxy keeps no list itself; start an etcd, or list the servers "
                            "as urls of context_servers and generation_servers"
                          : ""));
}

DisaggCluster take_disagg_cluster(formats::YamlMap map) {
  DisaggCluster cluster;
  if (!map.has("cluster_uri")) {
    map.complain("cluster_uri", "missing; expected etcd://host:port");
  } else if (const auto etcd = parse_cluster_uri(map.string_or("cluster_uri", "")); etcd.ok()) {
    cluster.etcd = *etcd;
  } else {
    map.complain("cluster_uri", etcd.status().message());
  }
  cluster.name = map.string_or("cluster_name", "");
  if (cluster.name.find('/') != cluster.name.npos) {
    map.complain("cluster_name", fmt::format("expected a name without '/', found '{}'",
                                             base::printable(cluster.name, 60)));
  }
  if (map.has("minimal_instances")) {
    formats::YamlMap least = map.map("minimal_instances");
    cluster.min_context_servers = take_count(least, "context_servers", 1, 0, kMaxServers);
    cluster.min_generation_servers = take_count(least, "generation_servers", 1, 0, kMaxServers);
    least.refuse_unknown_keys();
  }
  cluster.heartbeat_seconds =
      take_count(map, "heartbeat_interval_sec", cluster.heartbeat_seconds, 1, kMaxSeconds);
  cluster.inactive_seconds =
      take_count(map, "inactive_timeout_sec", cluster.inactive_seconds, 2, kMaxSeconds);
  if (cluster.heartbeat_seconds >= cluster.inactive_seconds) {
    map.complain("heartbeat_interval_sec",
                 fmt::format("expected less than inactive_timeout_sec, {}, found {}: servers would "
                             "be gone between two heartbeats",
                             cluster.inactive_seconds, cluster.heartbeat_seconds));
  }
  map.refuse_unknown_keys();
  return cluster;
}

}  // namespace wideep::parallel
