// SPDX-License-Identifier: Apache-2.0
//
// A field of a request's body: a row of the tables in request_fields.h, responses_fields.h and
// messages_fields.h.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <string_view>

namespace wideep::server {

// Bodies, as bits.
using Bodies = uint32_t;
inline constexpr Bodies kCompletionBody = 1, kChatBody = 2, kTokenizeBody = 4, kDetokenizeBody = 8,
                        kScaleBody = 16, kResponsesBody = 32, kMessagesBody = 64,
                        kCountTokensBody = 128;

enum class FieldUse : uint8_t {
  kHonoured,
  kOneValue,       // taken, but refused unless it is the value of the note, which changes nothing
  kWithoutEffect,  // whatever its value
  kRefused,        // unless it is null: it would change the answer
};

struct RequestField {
  std::string_view name;
  Bodies bodies = 0;
  FieldUse use = FieldUse::kHonoured;
  std::string_view note;  // what of it, as Markdown
};

// What a table for people says about the use.
std::string_view text_of(FieldUse use);

}  // namespace wideep::server
