// SPDX-License-Identifier: Apache-2.0
#include "chat_client.h"

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/try.h"

namespace wideep::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Behind [DONE] nothing comes but the end of the reply, and some servers leave that out.
constexpr std::chrono::milliseconds kEndPatience{500};
constexpr std::chrono::seconds kPatience{600};  // a long prompt on a busy server
constexpr std::chrono::milliseconds kLook{50};  // between two looks for signals
constexpr client::EventStreams::Limits kLimits{.event_bytes = size_t{8} << 20,
                                               .whole_bytes = size_t{8} << 20};

}  // namespace

// on_wait: whether to go on.
Status ChatClient::run(client::EventStreams::Call call, const std::function<bool()>& on_wait,
                       int* signal) const {
  std::optional<Status> end;
  std::string refusal;
  call.on_end = [&end](const Status& status) { end = status; };
  call.on_refusal = [&refusal](const client::Refusal& refused) {
    refusal = client::refusal_message(refused);
  };
  // Its end closes the connection of an answer that is under way.
  WIDEEP_TRY_ASSIGN(const std::unique_ptr<client::EventStreams> streams,
                    client::EventStreams::open(address_, kPatience, kLimits));
  streams->send(std::move(call));
  while (!end) {
    streams->wait(kLook);
    const int came = signals_.take();
    if (came == SIGINT || ChatSignals::ends_chat(came)) {
      *signal = came;
      return interrupted("stopped");
    }
    if (!on_wait()) return {};
  }
  if (!refusal.empty()) return failed(refusal);
  return *end;
}

Result<std::string> ChatClient::first_model() const {
  std::string body;
  int signal = 0;
  WIDEEP_TRY(run(
      {.path = "/models",
       .on_event = [&body](std::string_view data) { body = data; },
       .whole = true},
      [] { return true; }, &signal));
  return client::first_model(body);
}

Status ChatClient::ask(const std::string& request, const Sinks& sinks, client::ReplyReader* reply,
                       int* signal) const {
  Status wrong;
  const auto take = [&](std::string_view data) {
    if (!wrong.ok()) return;
    const Result<client::ReplyPiece> piece = reply->take(data);
    if (!piece.ok()) {
      wrong = piece.status();
    } else {
      sinks.on_piece(*piece);
    }
  };
  std::optional<Clock::time_point> done_at;
  const auto on_wait = [&] {
    if (sinks.on_wait) sinks.on_wait();
    if (reply->is_done() && !done_at) done_at = Clock::now();
    return wrong.ok() && (!done_at || Clock::now() - *done_at < kEndPatience);
  };
  const Status status =
      run({.path = "/chat/completions", .body = request, .on_event = take}, on_wait, signal);
  WIDEEP_TRY(wrong);
  WIDEEP_TRY(status);
  if (!reply->is_whole())
    return failed("the answer breaks off: the server has closed the connection");
  return {};
}

}  // namespace wideep::tools
