// SPDX-License-Identifier: Apache-2.0
//
// Gives other servers what a node's memory has of prompts (host_tier.h), by Redis' protocol:
//
//   AUTH <class> <token>              first; an error with both classes if they differ
//   PAGES.HAS <milliseconds> <head>…  for each head, of at most kMaxHeads, 1 or 0: all of its part
//                                     is there, and is not evicted for so long, unless half of the
//                                     memory is kept for somebody already (host_index.h)
//   PAGES.GET <head>                  the value of redis_record.h; nil: it is not there any more
//   PAGES.PUT <microseconds> <value>  a number of OfferResult; microseconds: of computing it.
//                                     For the token of those who offer: what they say is believed
//   PAGES.STATE <request>…            a number of RequestState for each; where it has ended, the
//                                     milliseconds since then more
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

#include <cstdint>
#include <memory>
#include <thread>

#include "base/shared_bytes.h"
#include "store/page_server_options.h"
#include "transport/tcp.h"
#include "wideep/status.h"

namespace wideep::store {

class PageServer : public PageServerLimits {
 public:
  // memory: of HostTier::create_memory(); outlives the server. Without a socket for peers on this
  // machine they use the other one. Errors (failed): the address is in use or not of this machine,
  // or the memory is none; (invalid input): no token.
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
