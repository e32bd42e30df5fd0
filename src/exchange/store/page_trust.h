// SPDX-License-Identifier: Apache-2.0
//
// Whose pages a server takes (serve --page-key-file). Pages carry only checksums that their sender
// makes, and stay for every later request with the same prompt: who may name a server to take them
// from could put anything into all answers. So servers sign what they say of themselves with a key
// that all of them share, and take pages only of one that has it. The key itself never travels.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "store/page_peer.h"
#include "transport/cluster_key.h"
#include "wideep/status.h"

namespace wideep::store {

class PageTrust {
 public:
  static constexpr size_t kMinKeyBytes = transport::ClusterKey::kMinBytes;

  // key: "": none; then servers of the same machine trust each other.
  explicit PageTrust(std::string key = "") : key_(std::move(key)) {}

  // PagePeer::mac of this peer: an HMAC-SHA-256 in hex over its text without request and mac. "":
  // there is no key.
  std::string sign(PagePeer peer) const;
  // Errors (invalid input): it has another mac; without a key, its host may be another machine.
  Status check(const PagePeer& peer) const;

 private:
  transport::ClusterKey key_;
};

}  // namespace wideep::store
