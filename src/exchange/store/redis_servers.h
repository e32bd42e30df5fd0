// SPDX-License-Identifier: Apache-2.0
//
// One server of Redis' protocol, or all of a cluster: takes questions about keys, each to the
// server that has its key, many at a time, and gives the answers in order. It follows what servers
// say about slots that have moved, and connects again where a connection has ended.
//
// Every wait has a deadline; a call that fails has dropped the connections that it had waited for.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/redis_connection.h"
#include "store/redis_slots.h"
#include "wideep/status.h"

namespace wideep::store {

// Commands about one key.
struct RedisQuestion {
  std::string key;
  std::vector<std::string> commands;  // append_command
  bool is_transaction = false;        // the first is MULTI, the last EXEC
  uint64_t max_reply_bytes = 0;       // of each reply: more is refused
  uint64_t expected_reply_bytes = 0;  // of all replies together: what they may take time for
};

class RedisServers {
 public:
  // Connects to nobody yet. Errors (invalid input): the files of TLS.
  static Result<RedisServers> make(RedisOptions options);

  // take: called for each question in order, as soon as its replies are there; where it returns
  // false nothing more is asked. Nor is it after `limit`, in which connecting does not count, as it
  // has a deadline of its own: no error. Errors: a server does not answer; those that take was not
  // called for have no answer. A reply may say that the command failed (RedisReply::is_error).
  using Take = std::function<bool(size_t index, std::vector<RedisReply> replies)>;
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24);
  Status ask(std::span<const RedisQuestion> questions, const Take& take,
             std::chrono::milliseconds limit = kNoLimit);

  // The same commands to all servers that have keys: for each its replies.
  Result<std::vector<std::vector<RedisReply>>> ask_each(std::span<const std::string> commands);

  // Of one server that is no cluster: a number of the connection to it, of which no other has the
  // same; 0: none is open, as far as this side knows.
  uint64_t open_connection() const;

  const RedisOptions& options() const { return options_; }

 private:
  struct Server {
    RedisHost host;
    std::optional<RedisConnection> connection;
    uint64_t number = 0;  // of the connection
  };
  // Where a call stands: questions [answered, sent) are on their way.
  struct Call {
    std::span<const RedisQuestion> questions;
    size_t answered = 0, sent = 0;
    std::vector<Server*> servers = {};           // [questions] that were asked
    std::optional<RedisRedirect> ask_once = {};  // for the one to be answered next
    Status stuck = {};  // why nothing more can be sent; what was sent may have answers
    int retries_left = 0, redirects_left = 0;
    Deadline latest = {};  // for the one that was answered last; what this side does is not counted
    Deadline until = {};   // the limit
  };

  explicit RedisServers(RedisOptions options)
      : options_(std::move(options)), is_cluster_(options_.hosts.size() > 1) {}

  Server& server_at(const RedisHost& host);
  Status connect(Server& server);
  Status find_server(const Call& call, Server*& server);
  Status learn_slots();
  Status learn_slots_from(Server& server);
  Status send_more(Call& call);
  Status send_next(Call& call);
  Status receive_next(Call& call, std::vector<RedisReply>& replies);
  Status answer_next(Call& call, std::vector<RedisReply>& replies);
  void begin_again(Call& call);
  bool begins_elsewhere(Call& call, const std::vector<RedisReply>& replies);
  Result<std::vector<RedisReply>> ask_one(Server& server, std::span<const std::string> commands);
  Deadline deadline_of(const Call& call, const RedisQuestion& question) const;
  void drop_waiting();

  RedisOptions options_;
  bool is_cluster_;                  // or has turned out to be one
  std::unique_ptr<TlsContext> tls_;  // null: none
  std::map<RedisHost, Server> servers_;
  uint64_t connections_ = 0;         // that were made
  std::optional<RedisSlots> slots_;  // of a cluster, once they are known
};

}  // namespace wideep::store
