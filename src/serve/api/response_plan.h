// SPDX-License-Identifier: Apache-2.0
//
// What the reply to a body of OpenAI's /v1/responses depends on beside its tokens: what it repeats
// of the request, what is stored with it, and which tools its calls are of.
//
// Thread safety: immutable once made.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "api/parsed.h"
#include "api/response_store.h"
#include "api/responses_request.h"
#include "api/responses_tools.h"

namespace wideep::server {

struct ResponsePlan {
  nlohmann::ordered_json repeated;  // ResponsesRequest
  ResponseStore* store = nullptr;   // where the response goes; null: it is not stored
  // What is stored with it: the conversation of `previous`, if there is one, then these, as JSON.
  std::shared_ptr<const StoredResponse> previous = nullptr;
  std::string items = {};
  ResponseTools tools = {};

  std::string conversation() const;
  size_t conversation_bytes() const {  // about
    return items.size() + (previous == nullptr ? 0 : previous->conversation.size());
  }
};

// The chat that the request asks for, with its plan in the options (GenerationOptions::response).
// keeps_records: another process may go on with the request. Errors: it has to be stored, and is
// larger than the store.
Parsed<ChatRequest> planned_chat(ResponsesRequest request, ResponseStore& store,
                                 bool keeps_records);

}  // namespace wideep::server
