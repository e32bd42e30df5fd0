// SPDX-License-Identifier: Apache-2.0
//
// How the reply to a request for text is written in the form of a protocol: whole, or as the events
// of a stream. A Generation has one, and calls:
//
//   begin, add …, end        of a stream: each appends events
//   whole                    else: the body of the reply
//   begin, add …, whole      else, if it takes_parts()
//   fail, or error           instead of what is left
//
// Not thread safe; one per request.
#pragma once

#include <string>
#include <vector>

#include "api/reply_part.h"
#include "http/http_error.h"

namespace wideep::server {

class ReplyWriter {
 public:
  virtual ~ReplyWriter() = default;

  // Whether the order of the parts of an answer matters. Then a part has text before calls that
  // begin in it, after calls that go on in it, and reasoning before both; add() is called for whole
  // replies, too, and whole() gets no answers.
  virtual bool takes_parts() const { return false; }

  // events: null for a whole reply. usage: of the prompts.
  virtual void begin(size_t num_answers, const Usage& usage, std::string* events) = 0;
  virtual void add(const ReplyPart& part, std::string* events) = 0;
  virtual void end(const Usage& usage, std::string* events) = 0;
  virtual void fail(const HttpError& error, std::string* events) = 0;
  // An event of a stream without a meaning, between others; "": the protocol has none.
  virtual std::string ping() const { return ""; }
  // An event of a stream with the progress of an answer's prompt, before the answer's first part; "":
  // the protocol has none.
  virtual std::string progress(int /*answer*/, const PromptShare& /*share*/) const { return ""; }

  // Bodies of whole replies.
  virtual std::string whole(const std::vector<ReplyPart>& answers, const Usage& usage) = 0;
  virtual std::string error(const HttpError& error) { return error.json(); }
};

}  // namespace wideep::server
