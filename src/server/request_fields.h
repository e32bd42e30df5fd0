// SPDX-License-Identifier: Apache-2.0
//
// The fields of the requests' bodies, in one table: what is done with each. The reader of requests
// goes by it, and docs/serve.md contains it (request_fields_test.cc).
//
// Thread safety: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace wideep::server {

// Bodies, as bits.
using Bodies = uint32_t;
inline constexpr Bodies kCompletionBody = 1, kChatBody = 2, kTokenizeBody = 4, kDetokenizeBody = 8,
                        kScaleBody = 16;

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

std::span<const RequestField> request_fields();

// Null: the body has no such field.
const RequestField* find_request_field(std::string_view name, Bodies body);

// The table as Markdown: a row for each field, with what the completions' and the chats' body do
// with it.
std::string request_fields_markdown();

}  // namespace wideep::server
