// SPDX-License-Identifier: Apache-2.0
//
// What a chat has said so far and how it asks: messages, the system prompt, fields of requests. It
// knows no server: it makes the bodies of requests of OpenAI's /v1/chat/completions, and is a file
// of JSON in /save and /load:
//
//   {"model": "m", "system": "Be short.", "settings": {"temperature": 0.5},
//    "messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "wideep/status.h"

namespace wideep::client {

class Conversation {
 public:
  struct Message {
    bool is_users = true;  // else the assistant's
    std::string text;
  };

  void set_system(std::string text) { system_ = std::move(text); }
  const std::string& system() const { return system_; }
  const std::vector<Message>& messages() const { return messages_; }
  const nlohmann::ordered_json& settings() const { return settings_; }

  // Text that goes before the next user's message, under its name.
  void attach(std::string_view name, std::string_view text);
  void add_user(std::string_view text);
  void add_answer(std::string text);

  // Forgets the last answer, so that the user's message before it is the last. False: no message.
  bool regenerate();
  bool undo();   // forgets the last user's message and what follows it. False: no message
  void clear();  // messages and what was attached

  // "temperature 0.5" or "temperature=0.5": a field of requests; the value is JSON, or else a text. A
  // name alone takes the field out. Errors (invalid input): a field that the chat itself needs; the
  // field is not set.
  Status set(std::string_view text);

  // The body of a request for a streamed answer to the last message.
  std::string request(const std::string& model) const;

  std::string saved(const std::string& model) const;
  // Errors (invalid input): `text` is no such file; name: of the file, for messages.
  static Result<Conversation> loaded(std::string_view text, const std::string& name);

 private:
  nlohmann::ordered_json messages_json() const;

  std::string system_;
  std::vector<Message> messages_;
  std::string attached_;
  nlohmann::ordered_json settings_ = nlohmann::ordered_json::object();
};

}  // namespace wideep::client
