// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/messages_reply.h"
#include "api/messages_request.h"

// Any body is a request of a chat whose last message is not the assistant's, or is refused with a
// message that is JSON.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using wideep::server::ChatRequest;
  using wideep::server::HttpError;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto look_at = [](const wideep::server::Parsed<ChatRequest>& parsed) {
    if (const auto* error = std::get_if<HttpError>(&parsed)) {
      if (!nlohmann::json::accept(wideep::server::messages_error(*error, "req"))) __builtin_trap();
      return;
    }
    const auto& messages = std::get<ChatRequest>(parsed).messages;
    if (messages.empty() || messages.back()["role"] == "assistant") __builtin_trap();
  };
  look_at(wideep::server::parse_messages_request(body));
  look_at(wideep::server::parse_count_tokens_request(body));
  return 0;
}
