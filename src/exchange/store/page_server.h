// SPDX-License-Identifier: Apache-2.0
//
// Gives other servers what a node's memory has of prompts (host_tier.h), by Redis' protocol:
//
//   AUTH <class> <token>              first; an error with both classes if they differ
//   PAGES.HAS <milliseconds> <head>…  for each head, of at most kMaxHeads, 1 or 0: all of its part
//                                     is there, and is not evicted for so long, unless half of the
//                                     memory is kept for somebody already (host_index.h)
//   PAGES.GET <head>                  the value of redis_record.h; nil: it is not there any more
//   PAGES.PUT <microseconds> <value>  a number of OfferResult; microseconds: what computing it takes.
//                                     For the token of those who offer: what they say is believed
//   PAGES.STATE <request>…            a number of RequestState for each
//   PAGES.MEMORY                      where a peer on the same machine gets the memory itself, and
//                                     which machine that is (page_memory.h); nil: nowhere
//
// class: of the records (record.h). A head is that of a value, with the part that is wanted: parts
// that others have written are put together here, so that only what is wanted is sent. Tokens are
// compared here, and again by who has asked (peer_place.h).
//
// Clients are not trusted: one without the token has few bytes, little time and few of the
// connections; none takes more than kMaxCommandBytes and kMaxUnsentBytes of this side's memory, or
// more than its turn of the thread. Commands that are larger are read from one client at a time.
//
// Whoever has the memory itself can write it, too: it goes only to processes of the same user, who
// know a token.
//
// Thread safety: any thread; it has one of its own.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/shared_bytes.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::store {

// Of a request whose prompt somebody waits for.
enum class RequestState : uint8_t {
  kUnknown,   // it has not come, or it was long ago
  kComputes,  // more pages may come
  kEnded,     // of all pages that it has computed, those that are kept are there or come soon
};

// Of servers that follow each other. Any thread.
struct PageServerCounts {
  std::atomic<uint64_t> looks = 0;               // PAGES.HAS
  std::atomic<uint64_t> records = 0, bytes = 0;  // PAGES.GET of what was there
};

struct PageServerOptions {
  transport::PeerAddress address;  // port 0: any that is free
  std::string token;               // not empty
  std::string record_class;
  // Of those who compute pages for this server, its ranks on other nodes; "": nobody may offer.
  // Not the other token, which goes around with requests.
  std::string offering_token = {};
  // By a name that both sides know; called on the server's thread. Null: none is known.
  std::function<RequestState(std::string_view request)> state_of = {};
  PageServerCounts* counts = nullptr;  // outlives the server; null: nobody counts
};

class PageServer {
 public:
  static constexpr size_t kMaxConnections = 256;
  static constexpr uint64_t kMaxCommandBytes = uint64_t{1} << 20;
  static constexpr uint64_t kMaxUnsentBytes = uint64_t{16} << 20;  // and one value
  static constexpr uint64_t kMaxOfferBytes = kMaxUnsentBytes + (uint64_t{1} << 20);
  static constexpr size_t kMaxHeads = 64;

  // memory: of HostTier::create_memory(); outlives the server. Without a socket for peers on this
  // machine they use the other one. Errors (failed): the address is in
  // use or not of this machine, or the memory is none; (invalid input): no token.
  static Result<std::unique_ptr<PageServer>> start(PageServerOptions options,
                                                   const base::SharedBytes& memory);
  // Ends all connections.
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Where it listens.
  const transport::PeerAddress& address() const { return address_; }

 private:
  class Loop;

  PageServer(std::unique_ptr<Loop> loop, const transport::PeerAddress& address);

  transport::PeerAddress address_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace wideep::store
