// SPDX-License-Identifier: Apache-2.0
#include "store/page_trust.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include "transport/tcp.h"

namespace wideep::store {
namespace {

// No name but this one: whoever answers for names could lead others anywhere.
bool is_this_machine(const RedisHost& host) {
  if (host.name == "localhost") return true;
  const auto address = transport::parse_address(host.text());
  return address.ok() && address->is_loopback();
}

}  // namespace

std::string PageTrust::sign(PagePeer peer) const {
  if (!key_.is_set()) return "";
  peer.request.clear();
  peer.mac.clear();
  std::string mac;
  for (const uint8_t byte : key_.prove("wideep pages", text_of(peer))) {
    mac += fmt::format("{:02x}", byte);
  }
  return mac;
}

Status PageTrust::check(const PagePeer& peer) const {
  if (!key_.is_set()) {
    if (is_this_machine(peer.host)) return {};
    return invalid_input(
        fmt::format("the server {} is on another machine: all servers need the same "
                    "--page-key-file",
                    peer.host.text()));
  }
  const std::string mac = sign(peer);
  // In a time that does not tell how much of a guess is right.
  const bool is_same = mac.size() == peer.mac.size() &&
                       ::CRYPTO_memcmp(mac.data(), peer.mac.data(), mac.size()) == 0;
  if (is_same) return {};
  return invalid_input(
      fmt::format("the server {} has {}: all servers need the same --page-key-file",
                  peer.host.text(), peer.mac.empty() ? "no page key" : "another page key"));
}

}  // namespace wideep::store
