// SPDX-License-Identifier: Apache-2.0
//
// The two bodies of a request whose prompt one server computes and whose answer another one gives.
// Both are the client's, byte for byte, with a member more:
//
//   "disaggregated_params": {"request_type": "context_only", "disagg_request_id": 7,
//                            "encoded_opaque_state": "1;…" where earlier turns were answered, …}
//   "disaggregated_params": {"request_type": "generation_only", "disagg_request_id": 7,
//                            "ctx_request_id": 7, "encoded_opaque_state": "1;…", …}
//
// and the first without what is about the answer's way: its stream, and where it is stored.
//
// Thread safety: pure functions; new_request_id() from any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/disaggregation_options.h"

namespace wideep::server {

// Whether this body of a request for text may be divided. Not one that another proxy has divided,
// that wants to know what the model thinks of the prompt itself, that goes on from an answer which
// one server has stored, that has several prompts or wants several answers, or that cannot be read.
// Reads about 1 GB/s.
bool can_divide(std::string_view body);

// disaggregated_params or kv_transfer_params, if the body has it and it is not null; "": neither. A
// body that cannot be read has none that a server would read.
std::string_view shared_params_in(std::string_view body);

// Of a request at both servers: 53 random bits, which any reader of JSON keeps.
uint64_t new_request_id();

// Of the part that computes the prompt. earlier: of a server that may have pages of the prompt, as
// it gives it; "": none.
struct ContextParams {
  uint64_t request_id = 0;
  ScheduleStyle style = ScheduleStyle::kGenerationFirst;
  std::string earlier = {};
};
// REQUIRES for both: can_divide(body).
std::string context_body(std::string_view body, const ContextParams& params);
// params: a JSON object.
std::string generation_body(std::string_view body, std::string_view params);

// state: of the server that computes the prompt, as it gives it.
std::string generation_params(uint64_t request_id, const std::string& state, ScheduleStyle style);
// The same as the reply of that server says it. Nullopt: it says nothing that could be read.
std::optional<std::string> generation_params_of(std::string_view reply);

}  // namespace wideep::server
