// SPDX-License-Identifier: Apache-2.0
#include "http/request_id.h"

#include <algorithm>

#include "base/random_hex.h"
#include "http/http_request_reader.h"

namespace wideep::server {

bool is_request_id(std::string_view text) {
  constexpr size_t kMaxBytes = 128;
  constexpr std::string_view kOthers = "._:/+=-";
  return !text.empty() && text.size() <= kMaxBytes && std::ranges::all_of(text, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOthers.find(c) != kOthers.npos;
  });
}

std::string request_id_of(const RequestHead& head) {
  std::string sent = head.field("x-request-id");
  return is_request_id(sent) ? sent : base::random_hex(16);
}

}  // namespace wideep::server
