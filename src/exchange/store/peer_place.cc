// SPDX-License-Identifier: Apache-2.0
#include "store/peer_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/content_hash.h"
#include "base/printable.h"
#include "base/try.h"
#include "store/page_memory.h"
#include "store/redis_record.h"

namespace wideep::store {
namespace {

constexpr size_t kHeadsPerQuestion = PageServer::kMaxHeads;
constexpr uint64_t kMaxLine = 4096;
constexpr uint64_t kOfferedBytes = uint64_t{4} << 20;  // of a part: a second at 4 MB/s
static_assert(kOfferedBytes + kRedisHeadBytes <= PageServer::kMaxUnsentBytes);

std::string_view text_of(const std::array<char, kRedisHeadBytes>& head) {
  return {head.data(), head.size()};
}

// As append_command, of as many words as there are.
std::string begin_command(std::string_view name, size_t num_words) {
  return fmt::format("*{}\r\n${}\r\n{}\r\n", num_words, name.size(), name);
}

void append_word(std::string& command, std::string_view word) {
  command += fmt::format("${}\r\n", word.size());
  command += word;
  command += "\r\n";
}

std::string has_command(std::span<const Head> heads, std::chrono::milliseconds lease) {
  std::string command = begin_command("PAGES.HAS", heads.size() + 2);
  append_word(command, std::to_string(lease.count()));
  for (const Head& head : heads) append_word(command, text_of(redis_value_head(head, 0)));
  return command;
}

// The numbers of an array that should have so many.
Result<std::vector<int64_t>> numbers_of(const RedisReply& reply, std::string_view what,
                                        size_t count) {
  if (reply.is_error() || reply.elements.size() != count) {
    return failed(fmt::format(
        "{}: expected {} numbers, found {}", what, count,
        reply.is_error() ? base::printable(reply.text) : std::to_string(reply.elements.size())));
  }
  std::vector<int64_t> numbers;
  for (const RedisReply& each : reply.elements) numbers.push_back(each.integer);
  return numbers;
}

// Whatever the peer says, the time is one that can be counted back from now.
constexpr std::chrono::milliseconds kMaxEndedBefore = std::chrono::hours(1);

RequestStatus status_of(int64_t number) {
  constexpr auto kEnded = static_cast<int64_t>(RequestState::kEnded);
  if (number < 0) return {};
  if (number < kEnded) return {.state = static_cast<RequestState>(number)};
  return {.state = RequestState::kEnded,
          .ended_before = std::min(std::chrono::milliseconds(number - kEnded), kMaxEndedBefore)};
}

// Of at most so many bytes, in order: their payloads follow each other in that of `part`.
std::vector<Part> parts_of(const Part& part, uint64_t most) {
  std::vector<Part> parts;
  if (part.length <= most) {
    const uint64_t at_once = most / std::max<uint64_t>(part.length, 1);
    for (uint64_t i = 0; i < part.count; i += at_once) {
      Part some = part;
      some.first += i * part.stride;
      some.count = std::min(at_once, part.count - i);
      parts.push_back(some);
    }
    return parts;
  }
  for (uint64_t i = 0; i < part.count; ++i) {
    for (uint64_t at = 0; at < part.length; at += most) {
      Part some = Part::whole(std::min(most, part.length - at));
      some.first = part.first + i * part.stride + at;
      parts.push_back(some);
    }
  }
  return parts;
}

}  // namespace

Result<std::unique_ptr<PeerPlace>> PeerPlace::make(const PeerOptions& options) {
  RedisOptions of_servers = {.hosts = {options.host},
                             .user = options.record_class,
                             .password = options.token,
                             .follows = false};
  WIDEEP_TRY_ASSIGN(RedisServers servers, RedisServers::make(std::move(of_servers)));
  return std::unique_ptr<PeerPlace>(new PeerPlace(std::move(servers), options));
}

Status PeerPlace::noted(Status status) {
  if (!status.ok()) {
    ++counts_.failures;
    trouble_ = status.message();
  }
  return status;
}

// ---- the memory of a peer on this machine ----

// Null: there is none, or not yet.
HostTier* PeerPlace::memory() {
  const uint64_t connection = servers_.open_connection();
  if (connection != asked_on_ || connection == 0) {
    tier_.reset();
    memory_ = {};
    asked_on_ = connection;
    const bool asks = connection != 0 && options_.maps_memory;
    if (asks && !map_memory().ok()) ++memory_use_.failures;
  }
  return tier_.get();
}

std::optional<uint64_t> PeerPlace::news() {
  HostTier* const tier = memory();
  return tier == nullptr ? std::nullopt : std::optional(tier->index().news());
}

// OK, and no tier: the peer is on another machine, or does not give its memory.
Status PeerPlace::map_memory() {
  RedisQuestion question;
  question.commands = {begin_command("PAGES.MEMORY", 1)};
  question.max_reply_bytes = question.expected_reply_bytes = kMaxLine;
  std::string name, machine;
  const auto take = [&](size_t, const std::vector<RedisReply>& replies) {
    const std::vector<RedisReply>& words = replies.front().elements;
    if (words.size() == 2) std::tie(name, machine) = std::tie(words[0].text, words[1].text);
    return true;
  };
  WIDEEP_TRY(servers_.ask({&question, 1}, take, servers_.options().find_timeout));
  if (name.empty() || machine != this_machine()) return {};
  if (servers_.open_connection() != asked_on_) return failed("the peer is another one by now");
  WIDEEP_TRY_ASSIGN(memory_, take_memory(name, options_.record_class, options_.token,
                                         servers_.options().find_timeout));
  WIDEEP_TRY_ASSIGN(tier_, HostTier::open(memory_));
  tier_->counts_no_hits();
  ++memory_use_.mapped;
  return {};
}

// done: orders that `each` was called for. Errors: the memory cannot be used any more.
Status PeerPlace::fetch_from(HostTier& tier, std::span<const FetchOrder> orders, size_t& done,
                             const std::function<bool(size_t index, FetchResult result)>& each) {
  const PlaceCounts before = tier.counts();
  Status status = tier.fetch(orders, [&](size_t index, FetchResult result) {
    ++done;
    return each(index, result);
  });
  const PlaceCounts& now = tier.counts();
  const uint64_t bytes = now.fetched_bytes - before.fetched_bytes;
  counts_.fetched += now.fetched - before.fetched;
  counts_.fetched_bytes += bytes;
  counts_.damaged += now.damaged - before.damaged;
  memory_use_.fetched_bytes += bytes;
  if (!status.ok()) ++memory_use_.failures;
  return status;
}

// ---- the place ----

std::vector<bool> PeerPlace::find(std::span<const Head> heads) {
  std::vector<bool> found(heads.size());
  std::vector<RedisQuestion> questions;
  for (size_t first = 0; first < heads.size(); first += kHeadsPerQuestion) {
    const auto some = heads.subspan(first, std::min(kHeadsPerQuestion, heads.size() - first));
    questions.push_back({.key = {},
                         .commands = {has_command(some, options_.lease)},
                         .max_reply_bytes = kMaxLine,
                         .expected_reply_bytes = kMaxLine});
  }
  Status refused;
  size_t answered = 0;
  const auto take = [&](size_t index, const std::vector<RedisReply>& replies) {
    const size_t first = index * kHeadsPerQuestion;
    const size_t count = std::min(kHeadsPerQuestion, heads.size() - first);
    const auto numbers = numbers_of(replies.front(), "PAGES.HAS", count);
    refused = numbers.status();
    if (!refused.ok()) return false;
    for (size_t i = 0; i < count; ++i) found[first + i] = (*numbers)[i] == 1;
    ++answered;
    return true;
  };
  Status status = servers_.ask(questions, take, servers_.options().find_timeout);
  if (status.ok()) status = refused;
  if (noted(std::move(status)).ok() && answered < questions.size()) ++counts_.slow_finds;
  return found;
}

Result<RequestStatus> PeerPlace::state(std::string_view request, std::chrono::milliseconds limit) {
  RedisQuestion question;
  append_command(question.commands.emplace_back(), {"PAGES.STATE", request});
  question.max_reply_bytes = question.expected_reply_bytes = kMaxLine;
  Result<RequestStatus> state = deadline_exceeded("PAGES.STATE: no answer in time");
  const auto take = [&](size_t, const std::vector<RedisReply>& replies) {
    const auto numbers = numbers_of(replies.front(), "PAGES.STATE", 1);
    state = numbers.ok() ? Result<RequestStatus>(status_of(numbers->front())) : numbers.status();
    return true;
  };
  WIDEEP_TRY(noted(servers_.ask({&question, 1}, take, limit)));
  WIDEEP_TRY(noted(state.status()));
  return state;
}

Status PeerPlace::fetch(std::span<const FetchOrder> orders,
                        const std::function<bool(size_t index, FetchResult result)>& done) {
  HostTier* const tier = memory();
  const auto begun = std::chrono::steady_clock::now();
  const auto note_time = [&] {
    counts_.fetch_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  };
  size_t num_done = 0;
  if (tier != nullptr) {
    const Status status = fetch_from(*tier, orders, num_done, done);
    if (status.ok()) {
      note_time();
      return status;
    }
    tier_.reset();  // this connection goes on without it
  }
  const auto rest = orders.subspan(num_done);
  std::vector<RedisQuestion> questions;
  for (const FetchOrder& order : rest) {
    WIDEEP_CHECK_EQ(order.into.size(), order.head.part.bytes());
    const auto head = redis_value_head(order.head, 0);
    std::string get;
    append_command(get, {"PAGES.GET", text_of(head)});
    const uint64_t bytes = kRedisHeadBytes + order.head.part.bytes() + kMaxLine;
    questions.push_back({.key = {},
                         .commands = {std::move(get)},
                         .max_reply_bytes = bytes,
                         .expected_reply_bytes = bytes});
  }
  Status refused;
  const auto take = [&](size_t index, const std::vector<RedisReply>& replies) {
    const RedisReply& reply = replies.front();
    const FetchOrder& order = rest[index];
    if (reply.is_error()) {
      refused = failed(fmt::format("PAGES.GET: {}", base::printable(reply.text)));
      return false;
    }
    RedisValue value;
    if (reply.type != RedisReply::Type::kNil) value = check_redis_value(reply.text, order.head);
    if (value.result == FetchResult::kWhole) {
      std::memcpy(order.into.data(), value.payload.data(), value.payload.size());
      ++counts_.fetched;
      counts_.fetched_bytes += value.payload.size();
    }
    if (value.result == FetchResult::kDamaged) ++counts_.damaged;
    return done(num_done + index, value.result);
  };
  Status status = servers_.ask(questions, take);
  if (status.ok()) status = refused;
  note_time();
  return noted(std::move(status));
}

OfferResult PeerPlace::offer(const Head& head, std::span<const std::byte> payload, double seconds,
                             const std::function<bool()>& is_intact) {
  WIDEEP_CHECK_EQ(payload.size(), head.part.bytes());
  if (!options_.offers) return OfferResult::kRefused;
  const auto before = std::exchange(interrupted_, std::nullopt);
  const bool goes_on =
      before && before->name == head.name && before->kind == head.kind && before->part == head.part;
  OfferResult all = OfferResult::kKnown;
  uint64_t offered = 0;
  size_t sent = 0;
  bool is_wanted = true;
  const auto still_wanted = [&] { return is_wanted = is_intact(); };
  for (const Part& part : parts_of(head.part, kOfferedBytes)) {
    if (goes_on && sent < before->sent) {
      offered += part.bytes();
      ++sent;
      continue;
    }
    Head some = head;
    some.part = part;
    const double share = static_cast<double>(part.bytes()) / static_cast<double>(payload.size());
    const OfferResult result =
        offer_part(some, payload.subspan(offered, part.bytes()), seconds * share, still_wanted);
    if (!is_wanted) {
      interrupted_ = {.name = head.name, .kind = head.kind, .part = head.part, .sent = sent};
    }
    if (result == OfferResult::kRefused || result == OfferResult::kFailed) return result;
    if (result == OfferResult::kTaken) all = result;
    offered += part.bytes();
    ++sent;
  }
  if (all == OfferResult::kTaken) {
    ++counts_.taken;
    counts_.taken_bytes += payload.size();
  }
  return all;
}

OfferResult PeerPlace::offer_part(const Head& head, std::span<const std::byte> payload,
                                  double seconds, const std::function<bool()>& is_intact) {
  const uint64_t bytes = kRedisHeadBytes + payload.size();
  RedisQuestion question;
  std::string& put = question.commands.emplace_back(begin_command("PAGES.PUT", 3));
  append_word(put, std::to_string(std::llround(std::clamp(seconds, 0.0, 1e6) * 1e6)));
  put += fmt::format("${}\r\n", bytes);
  const size_t head_at = put.size();
  put.resize(head_at + bytes);
  auto* const copied = reinterpret_cast<std::byte*>(put.data() + head_at + kRedisHeadBytes);
  std::memcpy(copied, payload.data(), payload.size());
  if (!is_intact()) return OfferResult::kRefused;
  const auto value_head = redis_value_head(head, base::content_hash(copied, payload.size()));
  std::memcpy(put.data() + head_at, value_head.data(), value_head.size());
  put += "\r\n";
  question.max_reply_bytes = question.expected_reply_bytes = kMaxLine;
  OfferResult result = OfferResult::kFailed;
  Status refused;
  const auto take = [&](size_t, const std::vector<RedisReply>& replies) {
    const RedisReply& reply = replies.front();
    const bool is_result = reply.type == RedisReply::Type::kInteger && reply.integer >= 0 &&
                           reply.integer < static_cast<int64_t>(OfferResult::kFailed);
    if (is_result) result = static_cast<OfferResult>(reply.integer);
    if (!is_result) refused = failed(fmt::format("PAGES.PUT: {}", base::printable(reply.text)));
    return true;
  };
  Status status = servers_.ask({&question, 1}, take);
  if (status.ok()) status = refused;
  return noted(std::move(status)).ok() ? result : OfferResult::kFailed;
}

}  // namespace wideep::store
