// SPDX-License-Identifier: Apache-2.0
//
// A server that sends anything: its events are refused or shown, and nothing of them drives the
// terminal; a file of /save that says anything is refused, or means the same when it is saved again.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "client/answer_view.h"
#include "client/chat_reply.h"
#include "client/conversation.h"
#include "client/event_parser.h"
#include "client/terminal_text.h"

namespace {

using namespace wideep::client;

void check(bool holds) {
  if (!holds) std::abort();
}

bool drives_terminal(std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f) return true;
  }
  return no_utf8_at(text).has_value();
}

// What a stream shows that comes in parts of `step` bytes.
std::string shown(std::string_view stream, size_t step) {
  constexpr auto kNow = AnswerView::Clock::time_point();
  std::string out;
  AnswerView view(
      {.rewrites = false, .colors = false}, [&out](std::string_view text) { out += text; }, kNow);
  ReplyReader reply;
  EventParser parser(size_t{1} << 20);
  bool goes_on = true;
  const auto on_event = [&](std::string_view data) {
    if (!goes_on) return;
    const auto piece = reply.take(data);
    if (piece.ok()) view.take(*piece, kNow);
    goes_on = piece.ok();
  };
  for (size_t at = 0; at < stream.size(); at += step) {
    check(parser.take(stream.substr(at, step), on_event));
  }
  view.end(kNow);
  return out + view.figures(reply);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = shown(text, text.size() + 1);
  check(!drives_terminal(whole));
  check(shown(text, 1) == whole);
  check(!drives_terminal(terminal_line(text)));
  const auto first = first_model(text);
  check(first.ok() || !first.status().message().empty());

  const auto conversation = Conversation::loaded(text, "f");
  if (!conversation.ok()) return 0;
  const std::string saved = conversation->saved("m");
  const auto again = Conversation::loaded(saved, "f");
  check(again.ok() && again->saved("m") == saved &&
        again->request("m") == conversation->request("m"));
  return 0;
}
