// SPDX-License-Identifier: Apache-2.0
//
// How an answer came about, as records: from them and the request another process makes the same
// reply, byte for byte, and goes on with it (Generation::start).
//
//   head | token | token | progress | token … | end      in the order in which they came
//
// They are kept beside the connection, for the next process of this server (ConnectionJournal), or
// travel in comments of a stream, for another server of the same version (stream_records.h). Those
// may be sent back by anybody: read() takes nothing for granted, and check() says whether they can
// be those of a request.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "run/event.h"
#include "server/answer_drafts.h"
#include "traces/trace_context.h"
#include "wideep/status.h"

namespace wideep::server {

// What a server's settings say about the bytes of replies.
struct ReplySettings {
  // A part of a stream is sent with an answer's first token, with those whose number divides by this,
  // and at the end.
  int stream_interval = 1;
  DraftMetrics draft_metrics = DraftMetrics::kNone;
  int max_drafts = 0;         // of a request in a step
  bool reuses_pages = false;  // of the KV cache, for later prompts
};

// What else would be different in another process.
struct AnswerHead {
  std::string id;  // of the reply
  int64_t created = 0;
  std::string model;
  uint64_t seed = 0;
  ReplySettings settings;

  // For the next process of this server alone; other servers leave it.
  struct Local {
    std::string kept;  // GenerationOptions::kept
    std::string request_id;
    int64_t came_ns = 0;
    std::optional<traces::RequestTrace> trace;
  } local = {};
};

struct AnswerToken {
  size_t index = 0;  // of the answer
  run::Token token;
};

// A client has been told how far a prompt has come.
struct AnswerProgress {
  size_t index = 0;
  int processed = 0;
  int64_t begun_ns = 0;  // of the steady clock of this machine
};

// Seconds since 1970; known when all answers have ended.
struct AnswerEnd {
  int64_t ended_at = 0;
};

std::string record_of(const AnswerHead& head);
std::string record_of(size_t index, const run::Token& token);
std::string record_of(const AnswerProgress& progress);
std::string record_of(const AnswerEnd& end);

struct AnswerRecords {
  AnswerHead head;
  std::vector<AnswerToken> tokens;
  std::vector<AnswerProgress> told;
  std::optional<AnswerEnd> end;

  // Of another machine: what only that one knows is left out.
  void leave_machine();

  // Errors (invalid input): the first record is no head, another one is; a record is not whole, has
  // bytes behind its end, or values that none has; they are of another version.
  static Result<AnswerRecords> read(std::span<const std::string> records);
};

// What the records of a request can say.
struct AnswerBounds {
  std::string_view id_start;  // of the reply's id
  // The names of the model; "": it has no second one.
  std::string_view model, other_model;
  int vocab_size = 0;
  // For each answer: tokens that come before its own (those of a prompt that is scored), and how
  // many there can be, those included.
  struct Tokens {
    std::span<const int32_t> forced;
    int max = 0;
    int prompt = 0;  // of the prompt
  };
  std::vector<Tokens> answers;
  int max_likely = 0;  // tokens beside each one
};
// Errors (invalid input): the records are not of such a request.
Status check(const AnswerRecords& records, const AnswerBounds& bounds);

}  // namespace wideep::server
