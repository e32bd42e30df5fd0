// SPDX-License-Identifier: Apache-2.0
//
// The engine of a chat: `wideep serve`, the same program, as a child, on a port of the loopback
// address and with a key that only this process knows. Its log goes to a file, which is removed
// unless it tells of a failure. The child ends with this process, however that ends: it gets
// SIGTERM when its parent dies, and its ranks end with it.
//
// Thread safety: one thread, which must live as long as the child (PR_SET_PDEATHSIG).
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "chat_signals.h"
#include "client/event_stream.h"
#include "wideep/status.h"

namespace wideep::tools {

class ChatEngine {
 public:
  // arguments: of wideep serve. key: the clients' key; "": a random one. Errors (failed): no process
  // can be started, no log can be written.
  static Result<std::unique_ptr<ChatEngine>> start(std::vector<std::string> arguments,
                                                   std::string key, const ChatSignals& signals);
  ~ChatEngine();  // ends the child
  ChatEngine(const ChatEngine&) = delete;
  ChatEngine& operator=(const ChatEngine&) = delete;

  // Waits until it serves, and returns where. on_wait: called a few times a second with the log's
  // last line. Errors: (the child's exit code) it ends before; (interrupted) a signal comes.
  Result<client::HttpAddress> wait_until_ready(
      const std::function<void(const std::string& last_line)>& on_wait);

  // Ok while it runs; else how it has ended, with the last line and the name of its log.
  Status check();

 private:
  ChatEngine(const ChatSignals& signals, std::string key, std::string log_file)
      : signals_(signals), key_(std::move(key)), log_file_(std::move(log_file)) {}

  Status run(std::vector<std::string> arguments, int log);
  void read_log();

  const ChatSignals& signals_;
  std::string key_, log_file_;
  pid_t child_ = -1;
  int wait_status_ = 0;  // once child_ is -1
  bool keeps_log_ = false;
  size_t log_read_ = 0;  // bytes
  std::string line_;     // whose end has not been read
  std::string last_line_, error_line_;
  std::string served_url_;  // "": it does not serve yet
};

}  // namespace wideep::tools
