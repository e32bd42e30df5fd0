// SPDX-License-Identifier: Apache-2.0
//
// A request whose prompt one server computes and whose answer another one gives: what its body says
// of that, in TensorRT-LLM's form (disaggregated_params) or vLLM's (kv_transfer_params).
//
//   client ─▶ prefill server   context only: one token; its reply says who has the pages
//   client ─▶ decode server    generation only: with what that reply, or the client itself, says
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "store/page_peer.h"

namespace wideep::server {

struct SharedPrompt {
  enum class Form : uint8_t { kTrt, kVllm };
  Form form = Form::kTrt;
  // Prompts are computed for another server; false: answers are given.
  bool is_context_only = false;
  // Of the request, at the server that computes its prompt: what peers ask for
  // (store::RequestState). "": context only, and the client has not named it.
  std::string name;
  // Who computes the prompt; nullopt: context only, or nobody (the answer is all that is left).
  std::optional<store::PagePeer> peer;
  // The first tokens as the prefill server has sampled them: those of this server have to be equal.
  std::vector<int32_t> first_tokens;
  // From TRT's fields that the reply repeats.
  std::optional<int64_t> disagg_request_id;
  std::string conversation_id, schedule_style;
};

}  // namespace wideep::server
