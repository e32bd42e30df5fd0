// SPDX-License-Identifier: Apache-2.0
#include "store/peer_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/printable.h"
#include "base/try.h"
#include "store/redis_record.h"

namespace wideep::store {
namespace {

constexpr size_t kHeadsPerQuestion = 64;
constexpr uint64_t kMaxLine = 4096;

std::string_view text_of(const std::array<char, kRedisHeadBytes>& head) {
  return {head.data(), head.size()};
}

// As append_command, of as many words as there are.
std::string has_command(std::span<const Head> heads, std::chrono::milliseconds lease) {
  const std::string milliseconds = std::to_string(lease.count());
  std::string command = fmt::format("*{}\r\n$9\r\nPAGES.HAS\r\n${}\r\n{}\r\n", heads.size() + 2,
                                    milliseconds.size(), milliseconds);
  for (const Head& head : heads) {
    command += fmt::format("${}\r\n", kRedisHeadBytes);
    command += text_of(redis_value_head(head, 0));
    command += "\r\n";
  }
  return command;
}

}  // namespace

Result<std::unique_ptr<PeerPlace>> PeerPlace::make(const PeerOptions& options) {
  RedisOptions of_servers = {
      .hosts = {options.host}, .user = options.record_class, .password = options.token};
  WIDEEP_TRY_ASSIGN(RedisServers servers, RedisServers::make(std::move(of_servers)));
  return std::unique_ptr<PeerPlace>(new PeerPlace(std::move(servers), options.lease));
}

Status PeerPlace::noted(Status status) {
  if (!status.ok()) {
    ++counts_.failures;
    trouble_ = status.message();
  }
  return status;
}

std::vector<bool> PeerPlace::find(std::span<const Head> heads) {
  std::vector<bool> found(heads.size());
  std::vector<RedisQuestion> questions;
  for (size_t first = 0; first < heads.size(); first += kHeadsPerQuestion) {
    const auto some = heads.subspan(first, std::min(kHeadsPerQuestion, heads.size() - first));
    questions.push_back({.key = {},
                         .commands = {has_command(some, lease_)},
                         .max_reply_bytes = kMaxLine,
                         .expected_reply_bytes = kMaxLine});
  }
  Status refused;
  size_t answered = 0;
  const auto take = [&](size_t index, const std::vector<RedisReply>& replies) {
    const RedisReply& reply = replies.front();
    const size_t first = index * kHeadsPerQuestion;
    const size_t count = std::min(kHeadsPerQuestion, heads.size() - first);
    if (reply.is_error() || reply.elements.size() != count) {
      refused = failed(fmt::format(
          "PAGES.HAS: expected {} numbers, found {}", count,
          reply.is_error() ? base::printable(reply.text) : std::to_string(reply.elements.size())));
      return false;
    }
    for (size_t i = 0; i < count; ++i) found[first + i] = reply.elements[i].integer == 1;
    ++answered;
    return true;
  };
  Status status = servers_.ask(questions, take, servers_.options().find_timeout);
  if (status.ok()) status = refused;
  if (noted(std::move(status)).ok() && answered < questions.size()) ++counts_.slow_finds;
  return found;
}

Status PeerPlace::fetch(std::span<const FetchOrder> orders,
                        const std::function<bool(size_t index, FetchResult result)>& done) {
  const auto begun = std::chrono::steady_clock::now();
  std::vector<RedisQuestion> questions;
  for (const FetchOrder& order : orders) {
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
    const FetchOrder& order = orders[index];
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
    return done(index, value.result);
  };
  Status status = servers_.ask(questions, take);
  if (status.ok()) status = refused;
  counts_.fetch_seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return noted(std::move(status));
}

}  // namespace wideep::store
