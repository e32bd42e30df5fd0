// SPDX-License-Identifier: Apache-2.0
//
// What is known of one request and its reply when both are over, for whoever watches them: the
// access log and traces. Times are those of the steady clock (base::wall_ns), which all processes
// of a machine share; 0: it has not happened, or nobody knows when.
//
// Thread safety: a plain value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "traces/trace_context.h"

namespace wideep::server {

// Of a request for text. With several answers: the first of them to be submitted, admitted and to
// have a token; the last one's last token.
struct TextWork {
  std::string operation;  // as OpenTelemetry names it: "chat", "text_completion"
  std::string model;
  int64_t prompt_tokens = -1;  // −1: it was refused before they were known
  int64_t cached_tokens = 0;
  int64_t written_tokens = 0;    // Usage
  int64_t generated_tokens = 0;  // of all answers
  int64_t submitted_ns = 0;      // to the ranks
  int64_t admitted_ns = 0;       // the first part of the prompt is computed
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  std::vector<std::string> finish_reasons;  // [answers] that have ended
  // Another serving process has died while it computed this: times before are not known.
  bool is_resumed = false;
};

// The part of a divided request that computed its prompt, of a router.
struct PrefillPart {
  std::string replica;
  std::string span_id;  // 16 hexadecimal digits
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

struct RequestRecord {
  std::string id;      // X-Request-Id
  std::string client;  // "127.0.0.1:40112"; "": nobody has asked for it
  std::string method;
  std::string path;  // as it came, without the query, which may have secrets
  int status = 0;    // 0: no reply was begun
  int64_t came_ns = 0;
  int64_t replied_ns = 0;  // the reply was complete
  int64_t ended_ns = 0;    // its last byte had been taken by the system, or the client had left
  bool is_whole = false;   // the former
  // The code of what ended the answer, perhaps in the middle of a stream, whose status was sent; "":
  // it has ended well, or was refused.
  std::string error;
  std::string replica;  // that has answered, of a router
  std::optional<PrefillPart> prefill;
  std::optional<TextWork> text;
  std::optional<traces::RequestTrace> trace;  // nullopt: nobody traces it
};

}  // namespace wideep::server
