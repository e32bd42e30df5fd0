// SPDX-License-Identifier: Apache-2.0
//
// The body of OpenAI's /v1/responses: becomes a chat, with what its reply repeats. Its fields are
// those of responses_fields.h; unknown ones are refused.
//
// Thread safety: pure functions.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/parsed.h"
#include "api/response_store.h"
#include "api/responses_tools.h"
#include "api/text_request.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

struct ResponsesRequest {
  ChatRequest chat;
  ResponseTools tools;
  bool store = false;
  nlohmann::ordered_json repeated;      // fields of the reply that say what was asked for
  nlohmann::ordered_json conversation;  // the items that are answered, earlier ones included
  std::shared_ptr<const StoredResponse> previous = nullptr;  // that it goes on from
  size_t num_stored = 0;  // the first items of the conversation: those of the previous one's
};

// stored: where previous_response_id is looked up; status 404 if it is not there.
Parsed<ResponsesRequest> parse_responses_request(std::string_view body, const ResponseStore& stored,
                                                 const run::SamplingDefaults& defaults = {});

}  // namespace wideep::server
