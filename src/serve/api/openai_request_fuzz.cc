// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/openai_request.h"

// Any body is a request, or is refused with a message that is JSON.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto look_at = [](const auto& parsed) {
    const auto* error = std::get_if<wideep::server::HttpError>(&parsed);
    return error == nullptr || nlohmann::json::accept(error->json()) ? 0 : 1;
  };
  return look_at(wideep::server::parse_completion_request(body)) +
         look_at(wideep::server::parse_chat_request(body)) +
         look_at(wideep::server::parse_tokenize_request(body)) +
         look_at(wideep::server::parse_detokenize_request(body));
}
