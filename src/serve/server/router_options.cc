// SPDX-License-Identifier: Apache-2.0
#include "server/router_options.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "base/numeric_address.h"

namespace wideep::server {

std::string ReplicaAddress::url() const { return fmt::format("http://{}:{}", host, port); }

Result<ReplicaAddress> parse_replica(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  std::string_view rest = text;
  if (rest.starts_with(kScheme)) rest.remove_prefix(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t colon = rest.rfind(':');
  ReplicaAddress address;
  if (colon != rest.npos && colon > 0) {
    const std::string_view digits = rest.substr(colon + 1);
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
    const bool whole = read.ec == std::errc() && read.ptr == digits.data() + digits.size();
    if (!whole || address.port > 65535) address.port = 0;
    address.host = rest.substr(0, colon);
  }
  if (address.port > 0 && address.host.find('/') == address.host.npos) return address;
  return invalid_input(fmt::format("--replica: expected http://host:port, found {}", text));
}

Result<std::string> resolve(const ReplicaAddress& address) {
  const Result<std::string> found = base::numeric_address(address.host);
  if (found.ok()) return found;
  return found.status().at("--replica " + address.url());
}

}  // namespace wideep::server
