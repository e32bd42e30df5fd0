// SPDX-License-Identifier: Apache-2.0
//
// A chat with a person at a terminal: reads messages and commands, shows answers as they come, and
// goes on after every failure that is not the engine's end.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>

#include "chat_client.h"
#include "client/answer_view.h"
#include "client/chat_command.h"
#include "client/conversation.h"
#include "client/message_reader.h"
#include "line_editor.h"
#include "wideep/status.h"

namespace wideep::tools {

class ChatTerminal {
 public:
  struct Parts {
    const ChatClient& client;
    LineEditor& editor;
    client::AnswerView::Style style;
    std::string model;  // its name in requests
    // After a failure: whether there is still a server to talk to. May be empty.
    std::function<Status()> check_server;
  };
  ChatTerminal(Parts parts, client::Conversation conversation)
      : parts_(std::move(parts)), conversation_(std::move(conversation)) {}

  // Until the user ends the chat (ok), a signal does (interrupted), or the engine has ended.
  Status run();

 private:
  void interrupt(const std::string& line);
  Status take(const std::string& line);
  Status take_command(const client::CommandLine& line);
  Status answer();
  Status end_answer(const Status& status, const std::string& text);
  Status set(const std::string& argument);
  Status read_text(const std::string& file);
  Status save(const std::string& file) const;
  Status load(const std::string& file);
  Status regenerate();
  void undo();
  void show() const;
  void show_thinking() const;
  void note(const std::string& text) const;  // a line about the chat, dim

  Parts parts_;
  client::Conversation conversation_;
  client::MessageReader reader_;
  std::string unanswered_;           // a message to which no text has come: /regen sends it again
  std::string thinking_;             // of the last answer
  std::string fields_since_answer_;  // that /set has changed since a request was taken
  bool was_interrupted_ = false;     // the last thing that was typed is Ctrl-C on an empty line
  bool ends_ = false;
};

}  // namespace wideep::tools
