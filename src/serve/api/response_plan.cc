// SPDX-License-Identifier: Apache-2.0
#include "api/response_plan.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "api/shared_prompt.h"
#include "formats/json_size.h"
#include "formats/json_text.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// The items of a conversation that the previous one has not, as JSON.
std::string new_items(const ResponsesRequest& request) {
  if (request.num_stored == 0) return formats::json_text(request.conversation);
  ordered_json items = ordered_json::array();
  for (size_t i = request.num_stored; i < request.conversation.size(); ++i) {
    items.push_back(request.conversation[i]);
  }
  return formats::json_text(items);
}

// Whether the store could keep the response.
std::optional<HttpError> check_stored(const ResponsePlan& plan) {
  const size_t bytes = plan.conversation_bytes();
  if (plan.store->may_keep(bytes)) return {};
  const ResponseStoreLimits& limits = plan.store->limits();
  return HttpError{.message = fmt::format("store: at most {} responses of {} bytes are kept, and "
                                          "this one has {}; leave it out, or start the server "
                                          "with higher --max-stored-responses and "
                                          "--max-stored-response-bytes",
                                          limits.count, limits.bytes, bytes),
                   .param = "store"};
}

}  // namespace

// The lists are joined as texts: to read them again would take long.
std::string ResponsePlan::conversation() const {
  constexpr std::string_view kNone = "[]";
  if (previous == nullptr || previous->conversation == kNone) return items;
  if (items == kNone) return previous->conversation;
  std::string text;
  text.reserve(previous->conversation.size() + items.size());
  text.append(previous->conversation, 0, previous->conversation.size() - 1);
  text += ',';
  return text.append(items, 1);
}

Parsed<ChatRequest> planned_chat(ResponsesRequest request, ResponseStore& store,
                                 bool keeps_records) {
  GenerationOptions& options = request.chat.options;
  if (keeps_records && request.previous != nullptr) {
    options.kept =
        ResponseStore::record_of(request.repeated["previous_response_id"], request.previous.get());
  }
  auto plan = std::make_shared<ResponsePlan>();
  // The server that answers stores the response.
  if (options.shared_prompt != nullptr && options.shared_prompt->is_context_only) {
    request.store = false;
    request.repeated["store"] = false;
  }
  if (request.store) {
    plan->store = &store;
    plan->previous = request.previous;
    plan->items = new_items(request);
    WIDEEP_REFUSE_IF(check_stored(*plan));
  }
  plan->repeated = std::move(request.repeated);
  plan->tools.by_function = std::move(request.tools.by_function);
  options.held_bytes += plan->items.size() + formats::json_bytes(plan->repeated);
  options.response = std::move(plan);
  return std::move(request.chat);
}

}  // namespace wideep::server
