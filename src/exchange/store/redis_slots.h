// SPDX-License-Identifier: Apache-2.0
//
// Which server of a cluster has a key, as Redis' cluster specification says: the key's CRC16 is one
// of 16,384 slots, and ranges of slots are at servers.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "store/redis_address.h"
#include "store/redis_reply.h"
#include "wideep/status.h"

namespace wideep::store {

inline constexpr int kRedisSlots = 16384;
inline constexpr size_t kMaxRedisHosts = 1024;  // of a cluster; the specification recommends 1,000

// Of what is between the first { and the } after it, where that is not empty; else of all.
int redis_slot(std::string_view key);

// "MOVED 3999 10.0.0.1:6379", "ASK …": who is to be asked instead.
struct RedisRedirect {
  bool is_ask = false;  // this once
  int slot = 0;
  RedisHost host;
};
// asked: who said so, and whom an empty name means. nullopt: it is another error.
std::optional<RedisRedirect> parse_redirect(std::string_view error, const RedisHost& asked);

class RedisSlots {
 public:
  // Of the reply to CLUSTER SLOTS. Errors (failed): it is no such reply, or says that no server
  // has any slot, that a slot is at two servers, or that there are more than kMaxRedisHosts.
  static Result<RedisSlots> parse(const RedisReply& reply, const RedisHost& asked);

  const std::vector<RedisHost>& hosts() const { return hosts_; }
  // nullptr: nobody has it at present.
  const RedisHost* host_of(int slot) const;
  // false: there are too many servers for another one; nothing has changed.
  bool move(int slot, const RedisHost& host);

 private:
  struct Range {
    int first = 0, last = 0;
    RedisHost host;
  };
  static Result<Range> parse_range(const RedisReply& reply, const RedisHost& asked);
  Status add(const Range& range);
  std::optional<int16_t> index_of(const RedisHost& host);

  std::vector<RedisHost> hosts_;
  std::array<int16_t, kRedisSlots> index_ = {};  // + 1; 0: nobody
};

}  // namespace wideep::store
