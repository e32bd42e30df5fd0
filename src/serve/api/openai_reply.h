// SPDX-License-Identifier: Apache-2.0
//
// The JSON of OpenAI's answers: whole, or as chunks of a stream.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "api/reply_part.h"
#include "api/reply_writer.h"
#include "http/http_error.h"

namespace wideep::server {

nlohmann::ordered_json whole_reply(const ReplyHead& head, const std::vector<ReplyPart>& answers,
                                   const Usage& usage);

// As one line of JSON.
std::string json_text(const nlohmann::ordered_json& json);

// Writes the events of a stream. The part that all chunks have in common is formatted once, so that
// a token costs only its own text.
class EventWriter {
 public:
  EventWriter(const ReplyHead& head, bool usage_follows);

  // Each adds an event to `events`. part.text, part.reasoning: UTF-8.
  void add_chunk(const ReplyPart& part, std::string* events) const;
  void add_usage(const Usage& usage, std::string* events) const;
  // An empty chunk with llama.cpp's `prompt_progress`.
  void add_progress(int answer, const PromptShare& share, std::string* events) const;
  // Between chunks, where nothing comes: clients take no notice of it.
  static std::string comment() { return ": keep-alive\n\n"; }
  // As OpenAI's clients expect it: they raise it as an error of the API.
  static void add_error(const HttpError& error, std::string* events) {
    *events += "data: " + error.json() + "\n";
  }
  static void add_last(std::string* events) { *events += "data: [DONE]\n\n"; }

 private:
  void add_open_chunk(const ReplyPart& part, std::string* events) const;

  Api api_;
  std::string head_;  // up to the choices
  bool usage_follows_;
};

// The reply of both endpoints.
class OpenAiReply : public ReplyWriter {
 public:
  OpenAiReply(ReplyHead head, bool includes_usage);

  void begin(size_t num_answers, const Usage& usage, std::string* events) override;
  void add(const ReplyPart& part, std::string* events) override;
  void end(const Usage& usage, std::string* events) override;
  void fail(const HttpError& error, std::string* events) override;
  std::string ping() const override { return EventWriter::comment(); }
  std::string progress(int answer, const PromptShare& share) const override;
  std::string whole(const std::vector<ReplyPart>& answers, const Usage& usage) override;

 private:
  const ReplyHead head_;
  const bool includes_usage_;
  const EventWriter events_;
};

}  // namespace wideep::server
