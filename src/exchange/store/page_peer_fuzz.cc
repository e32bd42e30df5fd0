// SPDX-License-Identifier: Apache-2.0
//
// A peer's text as anybody may send it in a request: it is refused with a reason, or is one, whose
// text says the same.
#include "store/page_peer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

void check(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::store;
  const auto peer = parse_page_peer({reinterpret_cast<const char*>(data), size});
  if (!peer.ok()) {
    check(!peer.status().message().empty());
    return 0;
  }
  const std::string text = text_of(*peer);
  check(!peer->token.empty() && peer->host.port != 0);
  check(std::ranges::all_of(text, [](char c) { return c > ' ' && c < 127 && c != '"'; }));
  const auto again = parse_page_peer(text);
  check(again.ok() && *again == *peer);
  return 0;
}
