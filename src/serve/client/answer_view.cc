// SPDX-License-Identifier: Apache-2.0
#include "client/answer_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "client/terminal_text.h"

namespace wideep::client {
namespace {

constexpr auto kStatusInterval = std::chrono::milliseconds(250);
constexpr double kQuietSeconds = 1;  // of waiting, before a line says so

double seconds(AnswerView::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

std::string dim(std::string_view text, bool colors) {
  return colors ? fmt::format("\x1b[2m{}\x1b[0m", text) : std::string(text);
}

AnswerView::AnswerView(Style style, Write write, Clock::time_point asked_at)
    : style_(style),
      write_(std::move(write)),
      asked_at_(asked_at),
      first_at_(asked_at),
      last_at_(asked_at),
      next_status_(asked_at) {}

void AnswerView::take(const ReplyPiece& piece, Clock::time_point now) {
  if (piece.content.empty() && piece.reasoning.empty()) return;
  if (parts_ == 0) first_at_ = now;
  ++parts_;
  last_at_ = now;
  if (!piece.reasoning.empty()) {
    ++thinking_parts_;
    thinking_ += piece.reasoning;
    if (stage_ == Stage::kWaiting) stage_ = Stage::kThinking;
    tick(now);
  }
  if (piece.content.empty()) return;
  text_ += piece.content;
  std::string_view content = piece.content;
  // Models put empty lines between their thinking and the text.
  if (stage_ != Stage::kText) {
    content.remove_prefix(std::min(content.find_first_not_of("\n"), content.size()));
    if (content.empty()) return;
    end_thinking(now);
  }
  const std::string shown = terminal_text(content);
  if (shown.empty()) return;
  write_(shown);
  is_line_open_ = !shown.ends_with('\n');
}

void AnswerView::tick(Clock::time_point now) {
  if (!style_.rewrites || stage_ == Stage::kText || now < next_status_) return;
  if (stage_ == Stage::kThinking) {
    show_status(
        fmt::format("thinking {:.0f} s, {} parts", seconds(now - first_at_), thinking_parts_));
  } else if (seconds(now - asked_at_) >= kQuietSeconds) {
    show_status(fmt::format("waiting {:.0f} s", seconds(now - asked_at_)));
  }
  next_status_ = now + kStatusInterval;
}

void AnswerView::end(Clock::time_point now) {
  if (stage_ != Stage::kText) end_thinking(now);
  if (is_line_open_) write_("\n");
  is_line_open_ = false;
}

std::string AnswerView::figures(const ReplyReader& reply) const {
  if (parts_ == 0) return "";
  // Without a usage it is not known how many tokens a part has.
  const bool counted = reply.usage().has_value();
  const int64_t tokens = counted ? reply.usage()->completion_tokens : parts_;
  const char* unit = counted ? "tokens" : "parts";
  std::string line = fmt::format("{} {}", tokens, unit);
  const double time = seconds(last_at_ - first_at_);
  if (tokens > 1 && time > 0) {
    line += fmt::format(", {:.1f} {}/s", static_cast<double>(tokens - 1) / time, unit);
  }
  line += fmt::format(", first after {:.2f} s", seconds(first_at_ - asked_at_));
  if (counted && reply.usage()->prompt_tokens > 0) {
    line += fmt::format(", prompt {} tokens", reply.usage()->prompt_tokens);
    if (reply.usage()->cached_tokens)
      line += fmt::format(" ({} cached)", *reply.usage()->cached_tokens);
  }
  if (counted && reply.usage()->reasoning_tokens.value_or(0) > 0) {
    line += fmt::format(", {} of thinking", *reply.usage()->reasoning_tokens);
  }
  if (reply.finish_reason() == "length") line += "; cut off at the limit of tokens";
  return line;
}

void AnswerView::show_status(const std::string& text) {
  write_(fmt::format("\r{}\x1b[K", dim(text, style_.colors)));
  has_status_ = true;
}

void AnswerView::clear_status() {
  if (has_status_) write_("\r\x1b[K");
  has_status_ = false;
}

void AnswerView::end_thinking(Clock::time_point now) {
  clear_status();
  if (stage_ == Stage::kThinking) {
    write_(dim(fmt::format("thought for {:.1f} s, {} parts (/think shows them)",
                           seconds(now - first_at_), thinking_parts_),
               style_.colors) +
           "\n");
  }
  stage_ = Stage::kText;
}

}  // namespace wideep::client
