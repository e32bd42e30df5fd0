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
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/page_peer.h"

namespace wideep::server {

struct SharedPrompt {
  enum class Form : uint8_t { kTrt, kVllm };
  Form form = Form::kTrt;
  // Prompts are computed for another server; false: answers are given.
  bool is_context_only = false;
  // Context only: what peers ask for (store::RequestState), a number in decimal. "": the client has
  // not named it, and the server draws a name.
  std::string name;
  // Who computes the prompt, under which name; context only: who may have computed its beginning
  // before, without a name. nullopt: nobody.
  std::optional<store::PagePeer> peer;
  const char* peer_param = "";  // the field that has said so, for messages
  // The first tokens as the prefill server has sampled them: those of this server have to be equal.
  std::vector<int32_t> first_tokens;
  // From TRT's fields that the reply repeats. schedule_style: TRT's number; 0: context first.
  std::optional<int64_t> disagg_request_id, schedule_style;
  std::string conversation_id;

  std::shared_ptr<const SharedPrompt> named(std::string other) const {
    auto copy = std::make_shared<SharedPrompt>(*this);
    copy->name = std::move(other);
    return copy;
  }
};

}  // namespace wideep::server
