// SPDX-License-Identifier: Apache-2.0
//
// What a server of Redis' protocol answers, read from bytes that come in pieces. The parser is
// hiredis'; only its reader is used: the sockets here have deadlines and TLS.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wideep/status.h"

struct redisReader;

namespace wideep::store {

struct RedisReply {
  enum class Type : uint8_t { kNil, kInteger, kText, kStatus, kError, kArray };
  Type type = Type::kNil;
  int64_t integer = 0;
  std::string text;  // kText: any bytes; kStatus, kError: a line
  std::vector<RedisReply> elements;

  bool is_error() const { return type == Type::kError; }
};

class RedisReplyReader {
 public:
  // Of a reply, with those within others: each takes memory, however short it is on the wire.
  static constexpr uint64_t kMaxValues = uint64_t{1} << 18;

  RedisReplyReader();

  void feed(std::span<const std::byte> bytes);
  // The next reply, if all of it is there. Errors (invalid input): no bytes of the protocol, or
  // more than kMaxValues; there is no way to go on.
  Result<std::optional<RedisReply>> next();
  // Fed, and not yet part of a reply that was returned.
  size_t num_pending_bytes() const;

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };
  std::unique_ptr<uint64_t> num_values_;  // of the reply so far; the reader counts there
  std::unique_ptr<redisReader, Free> reader_;
};

}  // namespace wideep::store
