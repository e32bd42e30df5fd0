// SPDX-License-Identifier: Apache-2.0
//
// Signals of a chat, taken where it waits instead of in handlers: SIGINT (Ctrl-C), which stops an
// answer; SIGTERM and SIGHUP, which end the chat; SIGCONT and SIGWINCH, after which a terminal is
// drawn again. They are blocked in this thread and in those that it starts, so that none is
// delivered while nobody waits.
//
// Thread safety: one thread, which starts no other before.
#pragma once

#include <csignal>
#include <initializer_list>

namespace wideep::tools {

class ChatSignals {
 public:
  ChatSignals();
  ~ChatSignals();
  ChatSignals(const ChatSignals&) = delete;
  ChatSignals& operator=(const ChatSignals&) = delete;

  int fd() const { return fd_; }                      // is readable when a signal has come
  int take() const;                                   // the next signal; 0: none has come
  const sigset_t& before() const { return before_; }  // the mask of children

  static bool ends_chat(int signal) { return signal == SIGTERM || signal == SIGHUP; }

 private:
  sigset_t before_;
  int fd_;
};

}  // namespace wideep::tools
