// SPDX-License-Identifier: Apache-2.0
#include "server/router_prefixes.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "server/router_divided_body.h"
#include "server/router_prompt_text.h"

namespace wideep::server {
namespace {

uint32_t steady_seconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::seconds>(now).count());
}

}  // namespace

RouterPrefixes::RouterPrefixes(size_t num_replicas, const Limits& limits)
    : limits_(limits), index_(num_replicas, limits.max_entries), pages_(num_replicas) {}

bool RouterPrefixes::add(size_t bytes, std::function<void()> call) {
  if (num_queued_ >= limits_.max_queue || queued_bytes_ + bytes > limits_.max_queue_bytes) {
    return false;
  }
  ++num_queued_;
  queued_bytes_ += bytes;
  thread_.add([this, bytes, run = std::move(call)] {
    run();
    --num_queued_;
    queued_bytes_ -= bytes;
  });
  return true;
}

bool RouterPrefixes::match(const std::string& path, Body body, OnMatch done) {
  const size_t bytes = body->size();
  return add(bytes, [this, path, text = std::move(body), called = std::move(done)] {
    called(read(path, *text));
  });
}

std::shared_ptr<PromptMatch> RouterPrefixes::read(const std::string& path,
                                                  const std::string& body) const {
  std::optional<PromptText> text = read_prompt_text(path, body);
  if (!text) return nullptr;
  auto match = std::make_shared<PromptMatch>();
  match->bytes = text->bytes;
  match->chain = std::move(text->chain);
  match->is_told = !text->has_salt;
  match->can_divide = can_divide(body);
  const uint32_t now = steady_seconds();
  for (size_t replica = 0; replica < pages_.size(); ++replica) {
    match->known.push_back(index_.match(replica, match->chain, now, kSentSeconds) *
                           PromptText::kChunkBytes);
  }
  return match;
}

bool RouterPrefixes::match_pages(std::shared_ptr<const PromptMatch> match, std::string reply,
                                 OnMatch done) {
  const size_t bytes = reply.size();
  return add(bytes,
             [this, before = std::move(match), text = std::move(reply), called = std::move(done)] {
               const Result<PageNames> names = read_page_names(text);
               if (!names.ok() || names->num_tokens == 0) return called(before);
               const auto exact = std::make_shared<PromptMatch>(*before);
               add_pages(*names, exact.get());
               called(exact);
             });
}

void RouterPrefixes::add_pages(const PageNames& names, PromptMatch* match) const {
  match->is_exact = true;
  match->num_tokens = names.num_tokens;
  const uint32_t now = steady_seconds();
  const double bytes_per_token =
      static_cast<double>(match->bytes) / static_cast<double>(names.num_tokens);
  for (size_t replica = 0; replica < pages_.size(); ++replica) {
    if (!pages_[replica].is_known()) continue;
    const auto tokens = static_cast<double>(pages_[replica].tokens_known(names));
    const uint64_t on_its_way =
        index_.match(replica, match->chain, now, kOnItsWaySeconds) * PromptText::kChunkBytes;
    match->known[replica] = std::max(static_cast<uint64_t>(tokens * bytes_per_token), on_its_way);
  }
}

void RouterPrefixes::sent(std::shared_ptr<const PromptMatch> match, size_t replica) {
  add(0, [this, known = std::move(match), replica] {
    index_.add(replica, known->chain, steady_seconds());
  });
}

void RouterPrefixes::forget_sent(size_t replica) {
  thread_.add([this, replica] { index_.forget(replica); });
}

void RouterPrefixes::forget_pages(size_t replica) {
  thread_.add([this, replica] { pages_[replica].clear(); });
}

void RouterPrefixes::take_snapshot(size_t replica, std::string reply, OnPosition done) {
  thread_.add([this, replica, text = std::move(reply), called = std::move(done)] {
    called(pages_[replica].take_snapshot(text));
  });
}

void RouterPrefixes::take_events(size_t replica, std::string reply,
                                 const ReplicaPages::Position& after, OnPosition done) {
  thread_.add([this, replica, text = std::move(reply), after, called = std::move(done)] {
    called(pages_[replica].take_events(text, after));
  });
}

}  // namespace wideep::server
