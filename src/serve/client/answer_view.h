// SPDX-License-Identifier: Apache-2.0
//
// A streamed answer on a terminal, as it comes: thinking folded to one line, the text, and a line of
// figures at the end.
//
//   thinking 3 s, 40 parts          rewritten in place until the text begins
//   thought for 3.2 s, 41 parts     (a part is a token on most servers)
//   The answer is ...
//   58 tokens, 12.3 tokens/s, first after 0.35 s, prompt 92 tokens (64 cached)
//
// What comes from the server goes through terminal_text().
//
// Thread safety: one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "client/chat_reply.h"

namespace wideep::client {

class AnswerView {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(std::string_view)>;
  struct Style {
    bool rewrites = true;  // a terminal: lines can be overwritten
    bool colors = true;    // figures and thinking are dim
  };

  // asked_at: when the request was sent.
  AnswerView(Style style, Write write, Clock::time_point asked_at);

  void take(const ReplyPiece& piece, Clock::time_point now);
  // Call while nothing comes: shows how long it has been thinking or waiting.
  void tick(Clock::time_point now);
  // Ends the text's line.
  void end(Clock::time_point now);
  // The line of figures, without its end; "": no token has come.
  std::string figures(const ReplyReader& reply) const;

  const std::string& text() const { return text_; }          // as the server has sent it
  const std::string& thinking() const { return thinking_; }  // the same

 private:
  enum class Stage : uint8_t { kWaiting, kThinking, kText };

  void show_status(const std::string& text);
  void clear_status();
  void end_thinking(Clock::time_point now);

  Style style_;
  Write write_;
  Clock::time_point asked_at_;
  Clock::time_point first_at_, last_at_;  // of the parts that have come
  Clock::time_point next_status_;
  int64_t thinking_parts_ = 0, parts_ = 0;
  Stage stage_ = Stage::kWaiting;
  bool has_status_ = false;    // a line that is to be overwritten
  bool is_line_open_ = false;  // the text's last line has not ended
  std::string text_, thinking_;
};

// Text between the sequences that make it dim, or alone.
std::string dim(std::string_view text, bool colors);

}  // namespace wideep::client
