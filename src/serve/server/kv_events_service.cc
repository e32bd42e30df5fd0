// SPDX-License-Identifier: Apache-2.0
//
// A reply with many pages is megabytes of text, which would delay the streams: it is written on a
// thread of its own. What is there is shared until then, not copied. All that clients can make this
// hold has a bound: clients that wait, replies that are written, pages of each, and, with all other
// replies, the bytes that nobody has read yet.
#include "server/kv_events_service.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>
#include <vector>

#include "api/openai_reply.h"
#include "base/cpu_time.h"

namespace wideep::server {
namespace {

constexpr size_t kMaxWaiting = 64;             // clients; each router needs one
constexpr size_t kMaxWritten = 128;            // replies at the same time
constexpr size_t kPagesOfReply = 1024;         // of batches; about 400 KB
constexpr size_t kPagesOfSnapshot = 1 << 16;   // about 26 MB
constexpr size_t kHashesOfSnapshot = 1 << 19;  // the same without tokens
constexpr int64_t kMaxWaitSeconds = 60;

HttpError too_many(const char* what, size_t max) {
  return {.status = 429,
          .message = fmt::format("{} clients {} already; try again later", max, what),
          .code = "too_many_readers"};
}

HttpError not_kept(uint64_t after) {
  return {.status = 410,
          .message = fmt::format("after: the batches after {} are not kept any more, or are those "
                                 "of another process; take /v1/kv_events/snapshot, and go on "
                                 "after its sequence",
                                 after),
          .param = "after",
          .code = "sequence_not_kept"};
}

void write_page(const kv_events::KnownPage& page, bool has_tokens, std::string* text) {
  const auto out = std::back_inserter(*text);
  fmt::format_to(out, "{{\"hash\":{},\"parent\":", page.hash);
  if (page.parent) {
    fmt::format_to(out, "{}", *page.parent);
  } else {
    *text += "null";
  }
  if (has_tokens) fmt::format_to(out, ",\"token_ids\":[{}]", fmt::join(page.tokens, ","));
  *text += '}';
}

std::string text_of(const kv_events::EventLog::Snapshot& snapshot, bool has_tokens) {
  std::string text = fmt::format(R"({{"sequence":{},"block_size":{},"is_complete":{},"ranks":[)",
                                 snapshot.sequence, store::kPageTokens, snapshot.is_complete);
  for (size_t i = 0; i < snapshot.ranks.size(); ++i) {
    text += fmt::format(R"({}{{"data_parallel_rank":{},"blocks":[)", i > 0 ? "," : "", i);
    const char* between = "";
    for (const kv_events::SharedPage& each : snapshot.ranks[i]) {
      text += std::exchange(between, ",");
      write_page(*each, has_tokens, &text);
    }
    text += "]}";
  }
  return text + "]}\n";
}

std::string text_of(const std::vector<kv_events::SharedBatch>& batches, uint64_t after) {
  auto list = nlohmann::ordered_json::array();
  for (const kv_events::SharedBatch& each : batches) list.push_back(json_of(*each));
  return json_text({{"sequence", batches.empty() ? after : batches.back()->sequence},
                    {"batches", std::move(list)}});
}

}  // namespace

void KvEventsService::snapshot(const std::shared_ptr<Exchange>& exchange) {
  const std::string tokens = exchange->query("tokens");
  if (tokens != "" && tokens != "0" && tokens != "1") {
    return replies_.refuse(exchange, {.message = "tokens: expected 0 or 1", .param = "tokens"});
  }
  const bool has_tokens = tokens != "0";
  reply_apart(exchange, [this, has_tokens] {
    return text_of(log_->snapshot(has_tokens ? kPagesOfSnapshot : kHashesOfSnapshot), has_tokens);
  });
}

void KvEventsService::events(const std::shared_ptr<Exchange>& exchange) {
  const auto after = replies_.read_number(
      exchange,
      {.name = "after", .what = "the sequence of a snapshot or a batch", .by_default = 0});
  if (!after) return;
  const auto seconds =
      replies_.read_number(exchange, {.name = "wait", .what = "seconds, 0 to 60", .by_default = 0});
  if (!seconds) return;
  if (*seconds < 0 || *seconds > kMaxWaitSeconds) {
    return replies_.refuse(exchange,
                           {.message = fmt::format("wait: expected 0 to {} seconds, found {}",
                                                   kMaxWaitSeconds, *seconds),
                            .param = "wait"});
  }
  const Waiting waiting{.exchange = exchange,
                        .after = static_cast<uint64_t>(*after),
                        .until_ns = base::wall_ns() + (ends_ ? 0 : *seconds * 1'000'000'000)};
  // It counts as waiting before the log is asked, so that no batch comes between unseen.
  ++num_waiting_;
  const bool is_over = answer(waiting);
  const bool is_full = waiting_.size() >= kMaxWaiting;
  if (is_over || is_full) --num_waiting_;
  if (is_over) return;
  if (is_full) return replies_.refuse(exchange, too_many("wait for batches", kMaxWaiting));
  const uint64_t id = next_++;
  waiting_[id] = waiting;
  exchange->on_gone([this, id] { num_waiting_ -= waiting_.erase(id); });
}

// Returns whether it need not wait any more.
bool KvEventsService::answer(const Waiting& waiting) {
  auto batches = log_->after(waiting.after, kPagesOfReply);
  if (!batches) {
    replies_.refuse(waiting.exchange, not_kept(waiting.after));
    return true;
  }
  if (batches->empty() && base::wall_ns() < waiting.until_ns) return false;
  reply_apart(waiting.exchange, [batches = std::move(*batches), after = waiting.after] {
    return text_of(batches, after);
  });
  return true;
}

// Clients that leave meanwhile are not among those that wait.
void KvEventsService::look() {
  for (auto& [id, each] : std::exchange(waiting_, {})) {
    if (answer(each)) {
      --num_waiting_;
    } else {
      waiting_[id] = std::move(each);
    }
  }
}

void KvEventsService::end() {
  ends_ = true;
  for (auto& [id, each] : waiting_) each.until_ns = 0;
  look();
}

void KvEventsService::reply_apart(const std::shared_ptr<Exchange>& exchange,
                                  std::function<std::string()> write) {
  if (work_.size() >= kMaxWritten) {
    return replies_.refuse(exchange, too_many("are answered", kMaxWritten));
  }
  const auto work = [this, write = std::move(write)]() -> ExchangeWork::Rest {
    return [this, text = write()](const std::shared_ptr<Exchange>& each) {
      if (const auto too_much = each->hold(text.size())) return replies_.refuse(each, *too_much);
      replies_.reply(each, kJson, text);
    };
  };
  if (work_.is_connected()) return work_.add(exchange, work);
  work_.do_at_once(exchange, work);
}

}  // namespace wideep::server
