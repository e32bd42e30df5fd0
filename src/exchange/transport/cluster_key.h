// SPDX-License-Identifier: Apache-2.0
//
// The secret that all nodes of a service share (serve --cluster-key-file). Who connects to a node
// proves that it has the secret, without sending it, before anything else is said:
//
//   node → service   Greeting, with a fresh nonce
//   service → node   Challenge: a fresh nonce
//   node → service   Proof: HMAC of both under the secret
//   service → node   Proof, made differently: so the service has the secret too
//
// Connections that follow from such a one carry a proof in their greeting: it covers the number of
// the service, which only nodes know and which is new for each service, and what the connection is
// for, which happens once.
//
// What is said afterwards is neither encrypted nor signed: the network between nodes is private.
//
// Thread safety: plain values, pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "wideep/status.h"

namespace wideep::transport {

using Digest = std::array<uint8_t, 32>;  // HMAC-SHA-256

class ClusterKey {
 public:
  static constexpr size_t kMinBytes = 16;
  static constexpr size_t kMaxBytes = 4096;

  ClusterKey() = default;  // there is no secret: everybody can prove it
  explicit ClusterKey(std::string secret) : secret_(std::move(secret)) {}
  // The text of the file without white space at its end. Errors: it cannot be read (failed), is too
  // short or too long (invalid input).
  static Result<ClusterKey> read(const std::string& path);

  bool is_set() const { return !secret_.empty(); }
  // purpose: what the proof is for, so that no other one can be used in its place.
  Digest prove(std::string_view purpose, std::string_view bytes) const;
  // Under which links between ranks are opened (tcp_link.h). service: NodeServer::service().
  ClusterKey for_links(uint64_t service) const;

 private:
  std::string secret_;
};

// Takes the same time whatever differs.
bool is_same(const Digest& a, const Digest& b);
// Bytes that nobody can guess, and that never come again.
Digest fresh_nonce();

// A value as it lies in memory, for prove().
template <typename T>
std::string_view memory_of(const T& value) {
  static_assert(std::has_unique_object_representations_v<T>);
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace wideep::transport
