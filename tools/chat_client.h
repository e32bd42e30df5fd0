// SPDX-License-Identifier: Apache-2.0
//
// Asks a server of OpenAI's API for answers, and gives signals their due meanwhile: Ctrl-C closes
// the connection, at which the server stops to compute.
//
// Thread safety: one thread.
#pragma once

#include <functional>
#include <string>

#include "chat_signals.h"
#include "client/chat_reply.h"
#include "client/event_stream.h"
#include "wideep/status.h"

namespace wideep::tools {

class ChatClient {
 public:
  ChatClient(client::HttpAddress address, const ChatSignals& signals)
      : address_(std::move(address)), signals_(signals) {}

  // The model that the server names first. Errors: those of ask().
  Result<std::string> first_model() const;

  struct Sinks {
    std::function<void(const client::ReplyPiece&)> on_piece;
    std::function<void()> on_wait;  // several times a second; may be empty
  };
  // request: the body of a request for a streamed chat. `reply` has what the answer says of itself.
  // Errors: (failed) the server cannot be reached, refuses, breaks off or says so; (interrupted)
  // a signal has come, which `signal` then is.
  Status ask(const std::string& request, const Sinks& sinks, client::ReplyReader* reply,
             int* signal) const;

  const client::HttpAddress& address() const { return address_; }

 private:
  Status run(client::EventStreams::Call call, const std::function<bool()>& on_wait,
             int* signal) const;

  client::HttpAddress address_;
  const ChatSignals& signals_;
};

}  // namespace wideep::tools
