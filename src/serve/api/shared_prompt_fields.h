// SPDX-License-Identifier: Apache-2.0
//
// disaggregated_params and kv_transfer_params: what a body says of a prompt that one server computes
// for another one.
//
// Thread safety: pure functions.
#pragma once

#include "api/body_reader.h"
#include "api/generation_options.h"

namespace wideep::server {

// The fields that have said so, for messages.
inline constexpr const char* kTrtParams = "disaggregated_params";
inline constexpr const char* kVllmParams = "kv_transfer_params";

// Sets options.shared_prompt if the body has one of them and it asks for anything but an ordinary
// answer.
void read_shared_prompt(BodyReader& body, GenerationOptions& options);

// Why the request, whole, cannot be context only; param: the field to change. nullopt: it can, or is
// none.
std::optional<HttpError> check_context_only(const GenerationOptions& options, size_t num_prompts);

}  // namespace wideep::server
