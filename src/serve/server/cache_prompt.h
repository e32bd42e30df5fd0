// SPDX-License-Identifier: Apache-2.0
//
// A prompt that is to be found in caches, or to get there: named as clients of the APIs name it.
//
//   {"prompt": "text" or [tokens]}                  as /v1/completions has it
//   {"messages": […], "tools": […]}                 as /v1/chat/completions
//   {"response_id": "resp_…"}                       a stored response, with the answer
//
// Other fields mean what they mean there; "model" may be missing. "cache_salt": whose pages.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "api/parsed.h"
#include "api/response_store.h"
#include "schedule/request.h"
#include "server/preparation.h"

namespace wideep::server {

struct CachePrompt {
  engine::SharedTokens tokens;  // at least one
  std::string salt;             // "": none
  int turn_begin = 0;           // engine::Request::turn_begin
};

// All outlive the call.
struct CachePromptContext {
  const Preparation& preparation;
  const ResponseStore& responses;
  const std::string& model;  // where the body names none
};

// The error of a body that is no object, or that the API refuses.
Parsed<CachePrompt> read_cache_prompt(nlohmann::ordered_json body,
                                      const CachePromptContext& context);

}  // namespace wideep::server
