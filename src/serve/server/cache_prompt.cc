// SPDX-License-Identifier: Apache-2.0
//
// The body becomes one of the API whose prompt it has, and is read as any of that API: what a field
// means, and which are refused, is said in one place.
#include "server/cache_prompt.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "api/api.h"
#include "base/printable.h"
#include "formats/json_parse.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// As a client that goes on from the response begins its prompt.
Parsed<ordered_json> follow_up(const ordered_json& body, const CachePromptContext& context) {
  const ordered_json& id = body["response_id"];
  const auto stored = id.is_string() ? context.responses.find(id.get<std::string>()) : nullptr;
  if (stored == nullptr) {
    return HttpError{.status = 404,
                     .message = fmt::format(
                         "response_id: there is no stored response {}; it was not sent with store: "
                         "true, or has made room for newer ones",
                         base::printable(formats::json_text(id), 60)),
                     .param = "response_id",
                     .code = "response_not_found"};
  }
  ordered_json request = body;
  request.erase("response_id");
  request["previous_response_id"] = id;
  request["input"] = ordered_json::array();
  const auto response = formats::parse_exact_json(stored->response, "response");
  // What templates write before the conversation; the next request is expected to say it again.
  for (const char* name : {"instructions", "tools"}) {
    if (!response.ok() || request.contains(name) || !response->contains(name)) continue;
    const ordered_json& value = (*response)[name];
    if (!value.is_null() && !value.empty()) request[name] = value;
  }
  return request;
}

}  // namespace

Parsed<CachePrompt> read_cache_prompt(ordered_json body, const CachePromptContext& context) {
  if (!body.is_object()) return HttpError{.message = "expected an object as the body"};
  const int num_named = static_cast<int>(body.contains("prompt")) +
                        static_cast<int>(body.contains("messages")) +
                        static_cast<int>(body.contains("response_id"));
  if (num_named != 1) {
    return HttpError{.message = fmt::format("expected one of prompt, messages and response_id, "
                                            "found {}",
                                            num_named == 0 ? "none" : "several of them"),
                     .param = "prompt"};
  }
  if (!body.contains("model")) body["model"] = context.model;
  const Api api = body.contains("prompt")     ? Api::kCompletion
                  : body.contains("messages") ? Api::kChat
                                              : Api::kResponses;
  if (api == Api::kResponses) {
    WIDEEP_PARSED(body, follow_up(body, context));
  }
  WIDEEP_PARSED(Prepared prepared,
                context.preparation.prepare(spec_of(api), formats::exact_json_text(body),
                                            std::time(nullptr)));
  if (prepared.prompts.size() != 1) {
    return HttpError{
        .message = fmt::format("prompt: expected one, found {}; ask for each by itself",
                               prepared.prompts.size()),
        .param = "prompt"};
  }
  return CachePrompt{.tokens = std::move(prepared.prompts[0]),
                     .salt = prepared.options.engine_request.salt,
                     .turn_begin = prepared.options.engine_request.turn_begin};
}

}  // namespace wideep::server
