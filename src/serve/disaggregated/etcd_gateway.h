// SPDX-License-Identifier: Apache-2.0
//
// Keys of an etcd, over its JSON gateway (etcd 3.4 and later: POST /v3/kv/put and others). Keys and
// values travel as base64, and 64-bit integers as strings.
//
// Every call is a connection of its own, and blocks: for at most kPatience while the etcd says
// nothing. Errors (failed): it cannot be reached, refuses, or answers something else; the message
// begins with its address.
//
// Thread safety: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "wideep/status.h"

namespace wideep::disaggregated {

class EtcdGateway {
 public:
  static constexpr std::chrono::seconds kPatience{2};

  struct Entry {
    std::string key, value;
  };
  struct Range {
    std::vector<Entry> entries;  // in the order of their keys
    // Of all changes that the etcd has seen; a smaller one than before: it has lost some.
    int64_t revision = 0;
  };

  // address: "host:port".
  explicit EtcdGateway(std::string address) : address_(std::move(address)) {}

  const std::string& address() const { return address_; }

  // A lease, which ends after `seconds` without keep_alive(), and with it its keys.
  Result<std::string> grant(int seconds);
  // False: there is no such lease any more.
  Result<bool> keep_alive(const std::string& lease);
  Status revoke(const std::string& lease);
  Status put(const Entry& entry, const std::string& lease);
  Status remove(const std::string& key);
  // All entries whose keys begin with the prefix, which is not empty.
  Result<Range> range(const std::string& prefix);

 private:
  // Posts a JSON object, and returns the reply's text.
  Result<std::string> post(const std::string& path, const std::string& body);
  Status unreadable(const std::string& path, const std::string& reply) const;

  std::string address_;
};

}  // namespace wideep::disaggregated
