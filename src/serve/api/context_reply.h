// SPDX-License-Identifier: Apache-2.0
//
// What the reply to a context-only request says, for the server that answers: where the pages of the
// prompt are, under which name, and the first token.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "api/shared_prompt.h"

namespace wideep::server {

struct ContextReply {
  const SharedPrompt& request;  // its name is set
  std::string opaque_state;     // of this server, a store::PagePeer without a request; "": none
  const std::vector<int32_t>& first_tokens;
  const std::vector<int32_t>& prompt_ids;
};

// disaggregated_params, or kv_transfer_params: as the request has it.
const char* context_field(const ContextReply& reply);
nlohmann::ordered_json context_json(const ContextReply& reply);

}  // namespace wideep::server
