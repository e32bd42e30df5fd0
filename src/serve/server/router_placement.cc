// SPDX-License-Identifier: Apache-2.0
#include "server/router_placement.h"

#include <event2/event.h>
#include <sys/time.h>

#include "http/http_server.h"

namespace wideep::server {
namespace {

constexpr size_t kMaxNamesBytes = size_t{16} << 20;
// Until a replica is asked again that has no names, or was late.
constexpr std::chrono::seconds kNoNamesWait{30}, kLateNamesWait{10};

}  // namespace

void RouterPlacement::start(Prompt prompt, Done done) {
  prompt_ = std::move(prompt);
  done_ = std::move(done);
  late_ = evtimer_new(http_.loop(), on_late, this);
  const timeval time{0, kPlaceMs * 1000};
  event_add(late_, &time);
  if (!prefixes_.match(prompt_.path, prompt_.body, take_later(true))) finish();
}

void RouterPlacement::cancel() {
  done_ = {};
  ask_.cancel();
  if (late_ != nullptr) event_free(std::exchange(late_, nullptr));
}

// A callback for the other thread, which must not hold the last reference.
RouterPrefixes::OnMatch RouterPlacement::take_later(bool asks_names) {
  return [http = &http_, weak = weak_from_this(),
          asks_names](std::shared_ptr<const PromptMatch> match) {
    http->post([weak, asks_names, found = std::move(match)] {
      const auto self = weak.lock();
      if (self != nullptr && self->done_) self->take(found, asks_names);
    });
  };
}

void RouterPlacement::take(std::shared_ptr<const PromptMatch> match, bool asks_names) {
  match_ = std::move(match);
  const bool may_ask =
      match_ != nullptr && match_->is_told && asks_names && prompt_.body->size() >= kMinNamedBytes;
  if (may_ask) asked_ = source_.choose_for_names();
  if (!may_ask || !asked_) return finish();
  RouterAsk::Question question = source_.question_of(*asked_);
  question.target = "/prompt_tokens?path=" + prompt_.path;
  question.timeout_ms = kPlaceMs;
  question.max_reply_bytes = kMaxNamesBytes;
  question.body = prompt_.body.get();
  question.headers = prompt_.headers;
  ask_.ask(question, [this](int status, const std::string& body) { take_names(status, body); });
}

// If the request is wrong the replica says so again when it gets it: that is not its fault.
void RouterPlacement::take_names(int status, const std::string& body) {
  const bool has_none = status == 0 || status == 404 || status == 405 || status >= 500;
  if (has_none) source_.rest(*asked_, kNoNamesWait);
  asked_.reset();
  if (status != 200 || !prefixes_.match_pages(match_, body, take_later(false))) finish();
}

void RouterPlacement::on_late(int, short, void* self) {
  auto* placement = static_cast<RouterPlacement*>(self);
  if (placement->asked_) placement->source_.rest(*placement->asked_, kLateNamesWait);
  placement->finish();
}

void RouterPlacement::finish() {
  const Done done = std::exchange(done_, {});
  cancel();
  if (done) done(match_);
}

}  // namespace wideep::server
