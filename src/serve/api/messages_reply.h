// SPDX-License-Identifier: Apache-2.0
//
// The replies of Anthropic's Messages API: a message of content blocks (thinking, text, tool_use),
// whole or as named events; its errors; its form of /v1/models.
//
//   message_start                                 then pings, as long as nothing comes
//   content_block_start, content_block_delta …,   of each block; after the first start a ping
//   content_block_stop
//   message_delta, message_stop                   why it has ended, and the usage; or: error
//
// What of the prompt was in the KV cache is known with the first token: message_start counts all of
// the prompt as input, message_delta has both.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/reply_writer.h"
#include "http/http_request_reader.h"

namespace wideep::server {

class MessagesWriter : public ReplyWriter {
 public:
  explicit MessagesWriter(ReplyHead head) : head_(std::move(head)) {}

  bool takes_parts() const override { return true; }
  void begin(size_t num_answers, const Usage& usage, std::string* events) override;
  void add(const ReplyPart& part, std::string* events) override;
  void end(const Usage& usage, std::string* events) override;
  void fail(const HttpError& error, std::string* events) override;
  std::string ping() const override;
  std::string whole(const std::vector<ReplyPart>& answers, const Usage& usage) override;
  std::string error(const HttpError& error) override;

 private:
  enum class Kind { kNone, kThinking, kText, kCall };
  // The content block that is open.
  struct Block {
    Kind kind = Kind::kNone;
    std::string id = {}, name = {};  // of a call
    std::string text = {};           // so far, of a whole reply
  };

  void begin_block(Block block, std::string* events);
  void add_to_block(std::string_view text, std::string* events);
  void end_block(std::string* events);
  nlohmann::ordered_json block_json() const;

  const ReplyHead head_;
  Block block_;
  int num_blocks_ = 0;                                                // begun
  nlohmann::ordered_json content_ = nlohmann::ordered_json::array();  // of a whole reply
  std::string_view stop_reason_;                                      // "": it has not ended
  std::string stop_sequence_;                                         // "": something else
  nlohmann::ordered_json context_;  // what a context-only reply has beside all else; else null
};

// Whether a request is one of Anthropic's API, whose replies have other forms: /v1/messages, and
// /v1/models with the header that its clients send.
bool is_anthropic(const RequestHead& head);

// Anthropic's status of a request that is refused: 529 for a full queue.
int messages_status(const HttpError& error);
// The body. request_id: "": null.
std::string messages_error(const HttpError& error, std::string_view request_id);

// The id of a request, by that of its message ("msg_…").
std::string request_id_of(std::string_view message_id);

// A model as Anthropic's /v1/models has it. created: seconds since 1970.
nlohmann::ordered_json anthropic_model(const std::string& name, int64_t created, int max_tokens);
nlohmann::ordered_json anthropic_models(const std::string& name, int64_t created, int max_tokens);

}  // namespace wideep::server
