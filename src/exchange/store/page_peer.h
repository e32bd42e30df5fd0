// SPDX-License-Identifier: Apache-2.0
//
// Who computes a prompt, under which name: what a server says of itself, a client carries to
// another server without reading it, and that one takes pages by (peer_fetches.h). Without a name:
// who may have computed it before.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "store/redis_address.h"
#include "wideep/status.h"

namespace wideep::store {

struct PagePeer {
  static constexpr size_t kMaxBytes = 1024;  // of its text

  RedisHost host;            // of its PageServer
  std::string token;         // of the same, [A-Za-z0-9._-]
  std::string record_class;  // of its pages, [0-9a-f]
  std::string request = {};  // as its RequestState is asked for, [A-Za-z0-9._:-]; "": none
  std::string mac = {};      // its signature (page_trust.h), [0-9a-f]; "": none

  // Else it has what it has: nothing is waited for.
  bool computes() const { return !request.empty(); }
  bool operator==(const PagePeer&) const = default;
};

// "1;host:port;token;class;request;mac": printable, without spaces or quotes.
std::string text_of(const PagePeer& peer);
// Text of anybody. Errors (invalid input): what of it is wrong.
Result<PagePeer> parse_page_peer(std::string_view text);

}  // namespace wideep::store
