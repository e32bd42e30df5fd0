// SPDX-License-Identifier: Apache-2.0
//
// What clients of a page server say, and what is answered (page_server.h); the sockets are the
// server's.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/host_tier.h"
#include "store/page_server_options.h"
#include "store/redis_reply.h"

namespace wideep::store {

class PageCommands {
 public:
  static constexpr size_t kMaxBytesBeforeAuth = 4096;

  // What has come from one client and is not done, and what is not sent.
  struct Client {
    size_t unsent() const { return out.size() - sent; }
    bool is_full() const { return unsent() >= PageServerLimits::kMaxUnsentBytes; }
    bool can_go_on() const { return has_more && !is_full() && !is_ending; }
    void error(std::string_view text);
    void end(std::string_view text);

    RedisReplyReader reader;
    size_t fed = 0;  // bytes behind the last whole command
    std::string out;
    size_t sent = 0;
    bool has_more = false;      // whole commands may lie in the reader
    bool is_local = false;      // has come for the memory
    bool is_known = false;      // has said AUTH
    bool may_offer = false;     // with the token for that
    bool takes_memory = false;  // is let in, and has come for it
    bool is_ending = false;     // when all is sent
  };

  // memory_name: where to come for the memory; "": nowhere.
  PageCommands(PageServerOptions options, std::unique_ptr<HostTier> tier, std::string memory_name);

  static void feed(Client& client, std::span<const std::byte> bytes);
  // Those that have come, for one turn.
  void do_some(Client& client);

 private:
  void do_one(Client& client, const std::vector<RedisReply>& words);
  void enter(Client& client, const std::vector<RedisReply>& words);
  void has(Client& client, const std::vector<RedisReply>& words);
  void get(Client& client, const std::vector<RedisReply>& words);
  void put(Client& client, const std::vector<RedisReply>& words);
  void state(Client& client, const std::vector<RedisReply>& words);
  void memory(Client& client) const;

  PageServerOptions options_;
  std::unique_ptr<HostTier> tier_;
  std::string memory_name_, machine_;
};

}  // namespace wideep::store
