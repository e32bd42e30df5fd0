// SPDX-License-Identifier: Apache-2.0
//
// A client sends the object back as it is, so each member has the name and the type that its form
// has for it, also those that say nothing here.
#include "api/context_reply.h"

#include <utility>

#include "api/shared_prompt_fields.h"
#include "base/check.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

ordered_json trt_json(const ContextReply& reply) {
  const SharedPrompt& request = reply.request;
  const auto or_null = [](const auto& value) {
    return value ? ordered_json(*value) : ordered_json();
  };
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? ordered_json() : ordered_json(text);
  };
  return {{"request_type", "context_only"},
          {"first_gen_tokens", reply.first_tokens},
          {"first_gen_log_probs", nullptr},
          {"first_gen_logits", nullptr},
          {"ctx_request_id", std::stoll(request.name)},
          {"encoded_opaque_state", text_or_null(reply.opaque_state)},
          {"draft_tokens", nullptr},
          {"disagg_request_id", or_null(request.disagg_request_id)},
          {"ctx_dp_rank", nullptr},
          {"ctx_info_endpoint", nullptr},
          {"schedule_style", or_null(request.schedule_style)},
          {"conversation_id", text_or_null(request.conversation_id)}};
}

// Pages are those of the whole model, whatever this server's layout is: tp_size 1.
ordered_json vllm_json(const ContextReply& reply) {
  ordered_json json = {{"do_remote_prefill", true},
                       {"do_remote_decode", false},
                       {"remote_engine_id", nullptr},
                       {"remote_request_id", nullptr},
                       {"remote_block_ids", ordered_json::array()},
                       {"remote_host", nullptr},
                       {"remote_port", nullptr},
                       {"tp_size", 1}};
  if (reply.opaque_state.empty()) return json;
  const auto peer = store::parse_page_peer(reply.opaque_state);
  WIDEEP_CHECK(peer.ok());
  json["remote_engine_id"] = peer->token + ";" + peer->record_class + ";" + peer->mac;
  json["remote_request_id"] = reply.request.name;
  json["remote_host"] = peer->host.name;
  json["remote_port"] = peer->host.port;
  return json;
}

}  // namespace

const char* context_field(const ContextReply& reply) {
  return reply.request.form == SharedPrompt::Form::kTrt ? kTrtParams : kVllmParams;
}

ordered_json context_json(const ContextReply& reply) {
  return reply.request.form == SharedPrompt::Form::kTrt ? trt_json(reply) : vllm_json(reply);
}

}  // namespace wideep::server
