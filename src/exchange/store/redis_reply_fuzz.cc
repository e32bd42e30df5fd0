// SPDX-License-Identifier: Apache-2.0
//
// A server that says anything, in pieces of any length: replies are refused or read, the same in
// pieces as in one; and what is made of them (slots, redirects, parts, records) is in its range.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <string_view>

#include "store/redis_record.h"
#include "store/redis_reply.h"
#include "store/redis_slots.h"

namespace {

using namespace wideep::store;

void check(bool holds) {
  if (!holds) std::abort();
}

bool are_equal(const RedisReply& a, const RedisReply& b) {
  if (a.type != b.type || a.integer != b.integer || a.text != b.text) return false;
  if (a.elements.size() != b.elements.size()) return false;
  for (size_t i = 0; i < a.elements.size(); ++i) {
    if (!are_equal(a.elements[i], b.elements[i])) return false;
  }
  return true;
}

// What was read before the first wrong byte.
std::vector<RedisReply> read(std::span<const std::byte> bytes, size_t step) {
  RedisReplyReader reader;
  std::vector<RedisReply> replies;
  for (size_t at = 0; at < bytes.size(); at += step) {
    reader.feed(bytes.subspan(at, std::min(step, bytes.size() - at)));
    for (;;) {
      auto reply = reader.next();
      if (!reply.ok()) {
        check(!reply.status().message().empty());
        return replies;
      }
      if (!reply->has_value()) break;
      replies.push_back(std::move(**reply));
    }
    check(reader.num_pending_bytes() <= bytes.size());
  }
  return replies;
}

Head wanted() {
  Head head;
  std::iota(head.tokens.begin(), head.tokens.end(), 1);
  head.name = page_name(head.before, 0, head.tokens);
  head.canonical_bytes = 16;
  head.part = Part::whole(16);
  return head;
}

void use(const RedisReply& reply) {
  const RedisHost asked{"asked", 6379};
  if (const auto slots = RedisSlots::parse(reply, asked); slots.ok()) {
    check(!slots->hosts().empty());
    for (int slot = 0; slot < kRedisSlots; slot += 97) {
      const RedisHost* host = slots->host_of(slot);
      check(host == nullptr || (host->port != 0 && !host->name.empty()));
    }
  }
  if (const auto redirect = parse_redirect(reply.text, asked)) {
    check(redirect->slot >= 0 && redirect->slot < kRedisSlots && redirect->host.port != 0);
  }
  if (const auto part = parse_redis_field(reply.text, 1000)) {
    check(part->length > 0 && part->count > 0);
    check(part->first + (part->count - 1) * part->stride + part->length <= 1000);
  }
  static const Head head = wanted();
  const RedisValue value = check_redis_value(reply.text, head);
  check((value.result == FetchResult::kWhole) == (value.payload.size() == 16));
  for (const RedisReply& each : reply.elements) use(each);
}

}  // namespace

// data: the length of pieces, then what the server says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  const std::vector<RedisReply> whole = read(bytes, bytes.size() + 1);
  const std::vector<RedisReply> pieces = read(bytes, 1 + data[0] % 64);
  check(whole.size() == pieces.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    check(are_equal(whole[i], pieces[i]));
    use(whole[i]);
  }
  return 0;
}
