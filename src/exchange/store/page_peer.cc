// SPDX-License-Identifier: Apache-2.0
#include "store/page_peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/try.h"

namespace wideep::store {
namespace {

constexpr std::string_view kVersion = "1";

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Of letters, digits and these.
Status check_word(std::string_view word, std::string_view others, const char* what) {
  const bool is_fine = std::ranges::all_of(
      word, [&](char c) { return is_alphanumeric(c) || others.find(c) != others.npos; });
  if (is_fine) return {};
  return invalid_input(
      fmt::format("expected a {} of letters, digits and \"{}\", found another byte", what, others));
}

}  // namespace

std::string text_of(const PagePeer& peer) {
  return fmt::format("{};{};{};{};{};{}", kVersion, peer.host.text(), peer.token, peer.record_class,
                     peer.request, peer.mac);
}

Result<PagePeer> parse_page_peer(std::string_view text) {
  if (text.size() > PagePeer::kMaxBytes) {
    return invalid_input(
        fmt::format("expected at most {} bytes, found {}", PagePeer::kMaxBytes, text.size()));
  }
  std::array<std::string_view, 6> parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t end = text.find(';');
    if ((end == text.npos) != (i + 1 == parts.size())) {
      return invalid_input("expected version;host:port;token;class;request;mac");
    }
    parts[i] = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
  }
  const auto& [version, host, token, record_class, request, mac] = parts;
  if (version != kVersion) {
    return invalid_input(
        fmt::format("expected version {}, found {}: the two servers are of "
                    "different releases",
                    kVersion, version.substr(0, 16)));
  }
  PagePeer peer;
  WIDEEP_TRY_ASSIGN(peer.host, parse_redis_host(host));
  WIDEEP_TRY(check_word(peer.host.name, "._:%-", "host"));
  if (peer.host.text() != host) return invalid_input("expected host:port, found another form");
  if (token.empty()) return invalid_input("expected a token, found none");
  WIDEEP_TRY(check_word(token, "._-", "token"));
  WIDEEP_TRY(check_word(record_class, "", "class"));
  WIDEEP_TRY(check_word(request, "._:-", "request's name"));
  WIDEEP_TRY(check_word(mac, "", "signature"));
  peer.token = token;
  peer.record_class = record_class;
  peer.request = request;
  peer.mac = mac;
  return peer;
}

}  // namespace wideep::store
