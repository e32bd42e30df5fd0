// SPDX-License-Identifier: Apache-2.0
//
// The fields that the bodies of several endpoints share: how tokens are drawn, and what a chat
// template is given.
//
// Thread safety: pure functions.
#pragma once

#include "api/body_reader.h"
#include "api/generation_options.h"
#include "run/sampling_defaults.h"

namespace wideep::server {

// Texts that end an answer, and the size of each.
inline constexpr size_t kMaxStops = 16, kMaxStopBytes = 1024;
// Of one reply, counting likely tokens, too. Each takes some 80 bytes of it, so that a reply is
// well below what all may have unread (HttpOptions), and many times that while it is put together.
inline constexpr int64_t kMaxLogprobsOfReply = 1 << 19;

// Of a cache_salt. It enters the names of pages (store/record.h), and the ranks keep it with each
// running request.
inline constexpr size_t kMaxSaltBytes = 256;

// What a body does not say: temperature 1, all tokens, or as the model's files have it.
engine::SamplingParams sampling_without(const run::SamplingDefaults& defaults);

// temperature, top_p, top_k, min_p, seed, the penalties, logit_bias: those that the body may have.
void read_sampling(BodyReader& body, const run::SamplingDefaults& defaults,
                   GenerationOptions& options);

// max_tokens or a newer name of it: 1 and more, 0 with options.echo, or −1 for an answer up to the
// end of the context. Nothing: as before.
void read_max_tokens(BodyReader& body, const char* name, GenerationOptions& options);

// ignore_eos, speculative, cache_salt, and where the prompt is computed: what only the engine reads,
// if the body may have it. Whatever else is of that kind belongs here, too: all APIs read it.
void read_engine_fields(BodyReader& body, GenerationOptions& options);

// chat_template_kwargs: an object, or null.
nlohmann::ordered_json read_variables(BodyReader& body);

// One of OpenAI's names for how much to reason; "": null. param: the field, for a complaint.
std::string read_effort(BodyReader& body, const std::string& param,
                        const nlohmann::ordered_json& effort);

}  // namespace wideep::server
