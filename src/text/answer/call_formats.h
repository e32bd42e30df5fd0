// SPDX-License-Identifier: Apache-2.0
//
// All formats of calls, each in a file of its own in formats/. Thread safety: immutable values.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "answer/call_format.h"

namespace wideep::answer {

extern const CallFormat kHermes, kGranite, kHunyuan, kLlamaJson, kMistral, kMistralV11, kDeepSeekV3,
    kDeepSeekV31, kDeepSeekV32, kDeepSeekV4, kKimiK2, kGlm45, kCohere, kSolarOpen, kGemma4, kHyV3,
    kHyV3Preview, kQwen3Coder, kMiniMaxM2, kMiniMaxM3, kDots, kPythonic;

// Those that CallReader goes through; GPT-OSS's is in harmony_answer.h.
std::span<const CallFormat* const> call_formats();

// By one of vLLM's names; null: none has it.
const CallFormat* find_call_format(std::string_view name);

// By what a model's chat template writes for calls, or tells the model to write; null: none of
// these formats.
const CallFormat* call_format_of_template(std::string_view text);

}  // namespace wideep::answer
