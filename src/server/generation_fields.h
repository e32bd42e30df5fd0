// SPDX-License-Identifier: Apache-2.0
//
// The fields that the bodies of several endpoints share: how tokens are drawn, and what a chat
// template is given.
//
// Thread safety: pure functions.
#pragma once

#include "server/body_reader.h"
#include "server/generation_options.h"

namespace wideep::server {

inline constexpr int kMostTokens = 1 << 24;
inline constexpr int kMostTopLogprobs = 20;  // OpenAI's, but for completions

// temperature, top_p, top_k, min_p, seed, the penalties, logit_bias.
void read_sampling(BodyReader& body, GenerationOptions& options);

// "off" or false; "on", true or nothing: as the server does.
bool read_speculates(BodyReader& body);

// chat_template_kwargs: an object, or null.
nlohmann::ordered_json read_variables(BodyReader& body);

// One of OpenAI's names for how much to reason; "": null. param: the field, for a complaint.
std::string read_effort(BodyReader& body, const std::string& param,
                        const nlohmann::ordered_json& effort);

}  // namespace wideep::server
