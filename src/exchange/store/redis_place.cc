// SPDX-License-Identifier: Apache-2.0
//
// find() asks which parts of each name are there, which are short replies. fetch() asks the same
// again, because others write and time passes, and then for the parts that cover each order: the
// part itself where somebody with the same layout has written it. Each reading lets a record live
// on for its whole time.
#include "store/redis_place.h"

#include <fmt/format.h>

#include <charconv>

#include "base/printable.h"
#include "base/try.h"
#include "store/checked_copy.h"
#include "store/part_cover.h"
#include "store/redis_record.h"

namespace wideep::store {
namespace {

// Redis' limit for a value, 512 MiB (proto-max-bulk-len).
constexpr uint64_t kMaxValueBytes = uint64_t{512} << 20;
constexpr std::string_view kWrongType = "WRONGTYPE ";  // another program's key
constexpr uint64_t kMaxShortReply = 4096;
constexpr uint64_t kMaxFieldsReply = uint64_t{1} << 20;
// What replies are reckoned with when it comes to time.
constexpr uint64_t kShortReply = 64;
constexpr uint64_t kFieldsReply = 4096;

std::string command(std::initializer_list<std::string_view> words) {
  std::string bytes;
  append_command(bytes, words);
  return bytes;
}

// "maxmemory:1234" of INFO's lines.
uint64_t info_value(std::string_view info, std::string_view name) {
  const std::string begin = fmt::format("\n{}:", name);
  const size_t at = info.find(begin);
  uint64_t value = 0;
  if (at != std::string_view::npos) {
    const std::string_view rest = info.substr(at + begin.size());
    std::from_chars(rest.data(), rest.data() + rest.size(), value);
  }
  return value;
}

}  // namespace

struct RedisPlace::Plan {
  struct Piece {
    size_t order = 0;
    Part part;
    bool is_last = false;  // of its order
  };
  std::vector<Piece> pieces;  // as questions
  std::vector<RedisQuestion> questions;
};

Result<std::unique_ptr<RedisPlace>> RedisPlace::make(RedisOptions options) {
  WIDEEP_TRY_ASSIGN(RedisServers servers, RedisServers::make(std::move(options)));
  return std::unique_ptr<RedisPlace>(new RedisPlace(std::move(servers)));
}

Status RedisPlace::noted(Status status) {
  if (!status.ok()) {
    ++counts_.failures;
    trouble_ = status.message();
  }
  return status;
}

std::string RedisPlace::expire(const std::string& key) const {
  return command({"EXPIRE", key, std::to_string(servers_.options().ttl.count())});
}

// Fields beyond kMaxRedisParts are no layouts', and foreign; the one that is wanted counts always.
RedisPlace::Listed RedisPlace::parts_of(const RedisReply& reply, const Head& head) {
  Listed listed{.is_there = true, .num_fields = reply.elements.size(), .parts = {}};
  for (const RedisReply& field : reply.elements) {
    const auto part = parse_redis_field(field.text, head.canonical_bytes);
    if (part && (listed.parts.size() < kMaxRedisParts || *part == head.part)) {
      listed.parts.push_back(*part);
    } else {
      ++counts_.foreign;
    }
  }
  return listed;
}

// [heads] what is there. Errors: those without an answer have none.
Status RedisPlace::list_parts(std::span<const Head* const> heads, std::chrono::milliseconds limit,
                              std::vector<Listed>& listed) {
  listed.assign(heads.size(), {});
  std::vector<RedisQuestion> questions(heads.size());
  for (size_t i = 0; i < heads.size(); ++i) {
    questions[i].key = redis_key(heads[i]->name, heads[i]->kind);
    questions[i].commands = {command({"HKEYS", questions[i].key})};
    questions[i].max_reply_bytes = kMaxFieldsReply;
    questions[i].expected_reply_bytes = kFieldsReply;
  }
  Status refused;
  const auto take = [&](size_t index, const std::vector<RedisReply>& replies) {
    const RedisReply& reply = replies.front();
    listed[index].is_there = true;
    if (reply.is_error() && reply.text.starts_with(kWrongType)) {
      ++counts_.foreign;
      return true;
    }
    if (reply.is_error()) {
      refused = failed(fmt::format("HKEYS: {}", base::printable(reply.text)));
      return false;
    }
    listed[index] = parts_of(reply, *heads[index]);
    return true;
  };
  WIDEEP_TRY(servers_.ask(questions, take, limit));
  return refused;
}

Status RedisPlace::check() {
  const Head nobodys;
  const Head* const asked = &nobodys;
  std::vector<Listed> listed;
  return list_parts({&asked, 1}, servers_.options().reply_timeout, listed);
}

std::vector<bool> RedisPlace::find(std::span<const Head> heads) {
  std::vector<const Head*> pointers;
  for (const Head& head : heads) pointers.push_back(&head);
  std::vector<Listed> listed;
  std::vector<bool> found(heads.size());
  const bool works = noted(list_parts(pointers, servers_.options().find_timeout, listed)).ok();
  if (works && !listed.empty() && !listed.back().is_there) ++counts_.slow_finds;
  for (size_t i = 0; i < heads.size(); ++i) {
    found[i] = !parts_that_cover(heads[i].part, listed[i].parts).empty();
  }
  return found;
}

void RedisPlace::ask_for(const Head& head, const Part& part, bool is_last, Plan& plan) {
  RedisQuestion question;
  question.key = redis_key(head.name, head.kind);
  question.commands = {command({"HGET", question.key, redis_field(part)})};
  if (is_last) question.commands.push_back(expire(question.key));
  question.max_reply_bytes = kRedisHeadBytes + part.bytes() + kMaxShortReply;
  question.expected_reply_bytes = kRedisHeadBytes + part.bytes() + kShortReply;
  plan.questions.push_back(std::move(question));
}

FetchResult RedisPlace::take_part(const FetchOrder& order, const Part& part,
                                  const RedisReply& reply) {
  if (reply.type == RedisReply::Type::kNil) return FetchResult::kMissing;  // since HKEYS
  Head head = order.head;
  head.part = part;
  const RedisValue value = check_redis_value(reply.text, head);
  if (value.result != FetchResult::kWhole) return value.result;
  counts_.fetched_bytes += value.payload.size();
  if (part == order.head.part) {
    std::memcpy(order.into.data(), value.payload.data(), value.payload.size());
  } else {
    copy_overlap(part, value.payload, order.head.part, order.into);
  }
  return FetchResult::kWhole;
}

Status RedisPlace::fetch(std::span<const FetchOrder> orders,
                         const std::function<bool(size_t index, FetchResult result)>& done) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<const Head*> heads;
  for (const FetchOrder& order : orders) heads.push_back(&order.head);
  std::vector<Listed> listed;
  WIDEEP_TRY(noted(list_parts(heads, RedisServers::kNoLimit, listed)));

  Plan plan;
  for (size_t i = 0; i < orders.size(); ++i) {
    const std::vector<Part>& parts = listed[i].parts;
    const std::vector<size_t> chosen = parts_that_cover(orders[i].head.part, parts);
    for (const size_t each : chosen) {
      const bool is_last = each == chosen.back();
      plan.pieces.push_back({.order = i, .part = parts[each], .is_last = is_last});
      ask_for(orders[i].head, parts[each], is_last, plan);
    }
  }

  size_t next = 0;  // order that is reported next; those without pieces are missing
  const auto report_missing_before = [&](size_t end) {
    while (next < end) {
      if (!done(next++, FetchResult::kMissing)) return false;
    }
    return true;
  };
  FetchResult result = FetchResult::kWhole;  // of the order so far
  Status refused;
  bool goes_on = true;
  Status status =
      servers_.ask(plan.questions, [&](size_t index, const std::vector<RedisReply>& replies) {
        const Plan::Piece& piece = plan.pieces[index];
        // Where EXPIRE is refused, to a user who may only read, the record goes earlier.
        const RedisReply& reply = replies.front();
        if (reply.is_error()) {
          refused = failed(fmt::format("HGET: {}", base::printable(reply.text)));
          return false;
        }
        goes_on = report_missing_before(piece.order);
        if (!goes_on) return false;
        if (result == FetchResult::kWhole)
          result = take_part(orders[piece.order], piece.part, reply);
        if (!piece.is_last) return true;
        if (result == FetchResult::kWhole) ++counts_.fetched;
        if (result == FetchResult::kDamaged) ++counts_.damaged;
        next = piece.order + 1;
        goes_on = done(piece.order, std::exchange(result, FetchResult::kWhole));
        return goes_on;
      });
  if (status.ok()) status = refused;
  if (status.ok() && goes_on) (void)report_missing_before(orders.size());
  counts_.fetch_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return noted(std::move(status));
}

// Tells the server to keep what the question has.
Result<OfferResult> RedisPlace::tell(const RedisQuestion& question) {
  std::string error;
  const auto take = [&](size_t, const std::vector<RedisReply>& replies) {
    // EXEC says only that there was an error before.
    for (const RedisReply& reply : replies) {
      if (reply.is_error() && error.empty()) error = reply.text;
    }
    for (const RedisReply& reply : replies.back().elements) {
      if (reply.is_error() && error.empty()) error = reply.text;
    }
    return true;
  };
  WIDEEP_TRY(servers_.ask({&question, 1}, take));
  if (error.empty()) return OfferResult::kTaken;
  if (error.starts_with(kWrongType)) {
    trouble_ = base::printable(error);
    return OfferResult::kRefused;
  }
  // Its memory is full, and its policy evicts nothing: no other page would be taken, either.
  return failed(fmt::format("HSET: {}", base::printable(error)));
}

// The value is put into the command where the payload is copied and hashed: it is not copied again.
OfferResult RedisPlace::offer(const Head& head, std::span<const std::byte> payload,
                              double /*seconds*/, const std::function<bool()>& is_intact) {
  if (payload.size() + kRedisHeadBytes > kMaxValueBytes) return OfferResult::kRefused;
  const Head* const wanted = &head;
  std::vector<Listed> listed;
  if (!noted(list_parts({&wanted, 1}, RedisServers::kNoLimit, listed)).ok()) {
    return OfferResult::kFailed;
  }
  RedisQuestion question;
  question.key = redis_key(head.name, head.kind);
  question.max_reply_bytes = kMaxShortReply;
  question.expected_reply_bytes = kShortReply;
  if (!parts_that_cover(head.part, listed.front().parts).empty()) {
    question.commands = {expire(question.key)};
    // Where EXPIRE is refused the record goes earlier.
    const Status status = servers_.ask({&question, 1}, [](size_t, const auto&) { return true; });
    return noted(status).ok() ? OfferResult::kKnown : OfferResult::kFailed;
  }
  if (listed.front().num_fields >= kMaxRedisParts) return OfferResult::kRefused;

  const std::string field = redis_field(head.part);
  std::string set =
      fmt::format("*4\r\n$4\r\nHSET\r\n${}\r\n{}\r\n${}\r\n{}\r\n${}\r\n", question.key.size(),
                  question.key, field.size(), field, kRedisHeadBytes + payload.size());
  const size_t head_at = set.size();
  set.resize(head_at + kRedisHeadBytes + payload.size());
  CheckedCopy copy(payload.size());
  copy.copy(payload.data(), reinterpret_cast<std::byte*>(set.data() + head_at + kRedisHeadBytes),
            payload.size());
  const uint64_t hash = copy.hash();
  if (!is_intact()) return OfferResult::kRefused;
  const auto value_head = redis_value_head(head, hash);
  std::copy(value_head.begin(), value_head.end(), set.begin() + static_cast<ptrdiff_t>(head_at));
  set += "\r\n";
  question.is_transaction = true;  // a record that does not expire would stay for ever
  question.commands = {command({"MULTI"}), std::move(set), expire(question.key), command({"EXEC"})};
  const Result<OfferResult> result = tell(question);
  if (!noted(result.status()).ok()) return OfferResult::kFailed;
  if (*result == OfferResult::kTaken) {
    ++counts_.taken;
    counts_.taken_bytes += payload.size();
  }
  return *result;
}

void RedisPlace::forget(const Name& name, Kind kind) {
  RedisQuestion question;
  question.key = redis_key(name, kind);
  question.commands = {command({"UNLINK", question.key})};
  question.max_reply_bytes = kMaxShortReply;
  question.expected_reply_bytes = kShortReply;
  std::string error;
  const Status status =
      servers_.ask({&question, 1}, [&](size_t, const std::vector<RedisReply>& replies) {
        if (replies.front().is_error()) error = replies.front().text;
        return true;
      });
  (void)noted(status.ok() && !error.empty()
                  ? failed(fmt::format("UNLINK: {}", base::printable(error)))
                  : status);
}

PlaceSize RedisPlace::size() {
  const auto now = std::chrono::steady_clock::now();
  if (now < size_until_) return size_;
  size_until_ = now + kSizeAge;
  const std::vector<std::string> commands = {command({"DBSIZE"}), command({"INFO", "memory"})};
  const auto all = servers_.ask_each(commands);
  if (!noted(all.status()).ok()) return size_;
  size_ = {};
  for (const std::vector<RedisReply>& replies : *all) {
    size_.records += static_cast<uint64_t>(std::max<int64_t>(0, replies[0].integer));
    if (replies[1].type != RedisReply::Type::kText) continue;
    size_.bytes += info_value(replies[1].text, "used_memory");
    size_.max_bytes += info_value(replies[1].text, "maxmemory");
  }
  return size_;
}

}  // namespace wideep::store
