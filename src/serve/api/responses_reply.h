// SPDX-License-Identifier: Apache-2.0
//
// The reply of OpenAI's /v1/responses: an object with a list of items (reasoning, messages, calls
// of functions), or events that say how it comes about:
//
//   response.created, response.in_progress
//   for each item:   response.output_item.added
//                    of reasoning and messages: response.content_part.added
//                    response.reasoning_text.delta …, .done   or response.output_text…
//                    or response.function_call_arguments…, response.custom_tool_call_input…
//                    of reasoning and messages: response.content_part.done
//                    response.output_item.done
//   response.completed, or response.incomplete, or error and response.failed
//
// Not thread safe; one per request.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/custom_input.h"
#include "api/reply_writer.h"
#include "api/response_plan.h"

namespace wideep::server {

class ResponsesWriter : public ReplyWriter {
 public:
  ResponsesWriter(ReplyHead head, std::shared_ptr<const ResponsePlan> plan);

  bool takes_parts() const override { return true; }
  void begin(size_t num_answers, const Usage& usage, std::string* events) override;
  void add(const ReplyPart& part, std::string* events) override;
  void end(const Usage& usage, std::string* events) override;
  void fail(const HttpError& error, std::string* events) override;
  std::string whole(const std::vector<ReplyPart>& answers, const Usage& usage) override;

 private:
  enum class Kind { kNone, kReasoning, kMessage, kCall, kCustomCall };
  // The item that comes at present.
  struct Item {
    Kind kind = Kind::kNone;
    int call = 0;  // the index of a call
    std::string id;
    std::string call_id, name, space;  // of a call
    std::string text;                  // so far; of a call, its arguments or its input
    CustomInput input;                 // of a custom call
    bool is_call() const { return kind == Kind::kCall || kind == Kind::kCustomCall; }
    nlohmann::ordered_json logprobs = nlohmann::ordered_json::array();  // of a message
    std::string delta;  // the start of an event with more of the text, after its number
  };

  void open(Kind kind, const answer::CallPart* call, std::string* events);
  void add_text(std::string_view text, std::string* events);
  void add_arguments(std::string_view arguments, std::string* events);
  void add_message_text(const ReplyPart& part, std::string* events);
  void close(bool is_cut, std::string* events);
  std::string finish(const Usage& usage);
  nlohmann::ordered_json content_part() const;
  nlohmann::ordered_json item_json(const char* status) const;
  nlohmann::ordered_json response(const char* status) const;
  nlohmann::ordered_json place() const;
  void add_event(const char* type, nlohmann::ordered_json members, std::string* events);

  const ReplyHead head_;
  const std::shared_ptr<const ResponsePlan> plan_;
  nlohmann::ordered_json output_ = nlohmann::ordered_json::array();  // the items that are complete
  Item item_;
  std::vector<TokenLogprob> waiting_;  // of tokens whose text is still to come
  bool is_cut_ = false;                // by max_output_tokens
  nlohmann::ordered_json context_;     // what a context-only reply has beside all else; else null
  int64_t num_events_ = 0;
};

}  // namespace wideep::server
