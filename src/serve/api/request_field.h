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

// Which values a field may have. A reader of requests does not say it again (BodyReader).
struct FieldValue {
  enum Type : uint8_t { kOther, kFlag, kText, kInteger, kNumber };
  Type type = kOther;        // kOther: whoever takes it knows what it is made of
  int64_t min = 0, max = 0;  // of kInteger and kNumber
  bool excludes_min = false;
};
inline constexpr FieldValue kAnyFlag{.type = FieldValue::kFlag};
inline constexpr FieldValue kAnyText{.type = FieldValue::kText};
constexpr FieldValue integers(int64_t min, int64_t max) {
  return {.type = FieldValue::kInteger, .min = min, .max = max};
}
constexpr FieldValue numbers(int64_t min, int64_t max) {
  return {.type = FieldValue::kNumber, .min = min, .max = max};
}
constexpr FieldValue numbers_above(int64_t min, int64_t max) {
  return {.type = FieldValue::kNumber, .min = min, .max = max, .excludes_min = true};
}

// Ranges that several bodies share.
inline constexpr int kMaxTokens = 1 << 24;
inline constexpr int kMaxTopLogprobs = 20;  // OpenAI's, but for completions
inline constexpr int kMaxPenalty = 2;       // OpenAI's
inline constexpr int kMaxAnswers = 128;     // n, and prompts of one request

struct RequestField {
  std::string_view name;
  Bodies bodies = 0;
  FieldUse use = FieldUse::kHonoured;
  std::string_view note;  // what of it, as Markdown
  FieldValue value = {};
};

// What a table for people says about the use.
std::string_view text_of(FieldUse use);

}  // namespace wideep::server
