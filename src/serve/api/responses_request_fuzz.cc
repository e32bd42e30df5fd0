// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/responses_request.h"
#include "formats/json_text.h"

namespace {

using nlohmann::ordered_json;
using wideep::server::ResponsesRequest;

const wideep::server::ResponseStore& stored() {
  static auto* store = [] {
    auto* made = new wideep::server::ResponseStore({});
    made->add("resp_1", {.response = R"({"output": []})",
                         .conversation = R"([{"id": "fc_1", "type": "function_call", "status":)"
                                         R"( "completed", "call_id": "c", "name": "f", )"
                                         R"("arguments": "{}"}])"});
    return made;
  }();
  return *store;
}

bool are_messages(const ordered_json& messages) {
  for (const ordered_json& each : messages) {
    if (!each.at("role").is_string()) return false;
    if (!each.at("content").is_string() && !each.contains("tool_calls")) return false;
  }
  return messages.is_array() && !messages.empty();
}

}  // namespace

// Any body is a request for a chat, or is refused with a message that is JSON. Items that were read
// once are read again as the same ones: a client may send back what it was given.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  const auto parsed = wideep::server::parse_responses_request(body, stored());
  if (const auto* error = std::get_if<wideep::server::HttpError>(&parsed)) {
    if (!ordered_json::accept(error->json())) __builtin_trap();
    return 0;
  }
  const auto& request = std::get<ResponsesRequest>(parsed);
  if (!are_messages(request.chat.messages)) __builtin_trap();
  if (request.conversation.empty()) return 0;  // instructions only
  const ordered_json again = {{"input", request.conversation}};
  const auto second =
      wideep::server::parse_responses_request(wideep::formats::json_text(again), stored());
  const auto* read = std::get_if<ResponsesRequest>(&second);
  if (read == nullptr || read->conversation != request.conversation) __builtin_trap();
  return 0;
}
