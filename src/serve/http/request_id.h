// SPDX-License-Identifier: Apache-2.0
//
// The id by which a client, a router, logs and traces name one request: the header X-Request-Id,
// the client's own if it is 1 to 128 of [A-Za-z0-9._:/+=-], else one that is made. Others could
// write into logs what they like.
//
// Thread safety: all.
#pragma once

#include <string>
#include <string_view>

namespace wideep::server {

struct RequestHead;

inline constexpr const char* kRequestId = "X-Request-Id";

bool is_request_id(std::string_view text);
// The client's, or 32 hexadecimal digits, random.
std::string request_id_of(const RequestHead& head);

}  // namespace wideep::server
