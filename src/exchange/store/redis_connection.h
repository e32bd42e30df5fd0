// SPDX-License-Identifier: Apache-2.0
//
// A connection to one server of Redis' protocol: commands are written, replies are read in the same
// order. Whoever does not want the replies any more drops the connection.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "store/redis_address.h"
#include "store/redis_reply.h"
#include "store/redis_socket.h"
#include "wideep/status.h"

namespace wideep::store {

// Appends a command, as the protocol has it.
void append_command(std::string& to, std::initializer_list<std::string_view> words);

class RedisConnection {
 public:
  // Connected, with user, password and database. tls: null: none; it outlives the connection.
  // Errors (failed, deadline exceeded): nobody there; (invalid input): it does not let us in.
  static Result<RedisConnection> open(const RedisHost& host, const RedisOptions& options,
                                      const TlsContext* tls);

  // After an error of these two, the connection is of no use any more. Invalid input: what comes is
  // no reply, and would be none on another connection.
  Status send(std::string_view commands, int num_commands, Deadline deadline);
  // max_bytes: more than that is an error: the server is not trusted with this side's memory.
  Result<RedisReply> receive(size_t max_bytes, Deadline deadline);

  bool is_open() const { return socket_.is_open(); }
  int num_unanswered() const { return num_unanswered_; }

 private:
  RedisConnection(RedisSocket socket, std::string where)
      : socket_(std::move(socket)), where_(std::move(where)) {}
  Status enter(const RedisOptions& options, Deadline deadline);

  RedisSocket socket_;
  std::string where_;
  RedisReplyReader reader_;
  std::vector<std::byte> buffer_;
  size_t num_bytes_ = 0;  // that have come of the next reply
  int num_unanswered_ = 0;
};

}  // namespace wideep::store
