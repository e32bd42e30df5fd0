// SPDX-License-Identifier: Apache-2.0
//
// From the turns of Anthropic's Messages API, made of content blocks, to messages of a chat as
// OpenAI's body has them (messages_request.h has the table).
//
// Not thread safe; one per request.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "api/body_reader.h"

namespace wideep::server {

// In the place of what a tool has given to models that can see.
inline constexpr std::string_view kImage = "[An image was here. This model reads text only.]";
inline constexpr std::string_view kDocument = "[A document was here. This model reads text only.]";

class TurnMessages {
 public:
  // Complains to `body`, with the place of what is wrong.
  explicit TurnMessages(BodyReader& body) : body_(body) {}

  // Text, or blocks of text; null: none. Lines for Anthropic's bills are left out.
  void add_system(const std::string& place, const nlohmann::ordered_json& content);
  // {"role", "content"}.
  void add(const std::string& place, const nlohmann::ordered_json& turn);
  // Takes off the last message if it is the assistant's: its text, which goes on. "": there is
  // none, or it is empty.
  std::string take_prefill();
  nlohmann::ordered_json take();

 private:
  void add_block(const std::string& role, const std::string& place,
                 const nlohmann::ordered_json& block);
  void add_call(const std::string& place, const nlohmann::ordered_json& block);
  void add_result(const std::string& place, const nlohmann::ordered_json& block);
  void add_text(const std::string& role, const char* member, std::string_view text);
  nlohmann::ordered_json& message_of(const std::string& role);
  // shows_images: an image is a text that says so; else it is refused.
  std::string text_of(const std::string& place, const nlohmann::ordered_json& content,
                      bool shows_images = false);
  // A member that has to be a text; "": it is none.
  std::string text_member(const std::string& place, const nlohmann::ordered_json& block,
                          const char* name);

  BodyReader& body_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

// Adds a part to the text of a message, behind an empty line; null is no text yet. In place: a body
// may have a part every few bytes.
void append_text(nlohmann::ordered_json& text, std::string_view part);

// The messages with those of role system that come after others as text of the user's: many
// templates know only one at the beginning, and agents send them anywhere. Null: there are none.
nlohmann::ordered_json with_systems_folded(const nlohmann::ordered_json& messages);

}  // namespace wideep::server
