// SPDX-License-Identifier: Apache-2.0
#include "store/redis_record.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cstring>

#include "base/content_hash.h"

namespace wideep::store {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 8> kMagic = {'w', 'd', 'p', 'r', 'e', 'd', 'i', 's'};
constexpr size_t kHashedFrom = 16;
constexpr uint64_t kMaxCanonicalBytes = uint64_t{1} << 40;

// As they lie in the value: no member needs padding.
struct Fields {
  std::array<char, 8> magic;
  uint64_t head_hash;
  uint64_t payload_hash;
  uint64_t payload_bytes;
  std::array<unsigned char, 16> name;
  std::array<unsigned char, 16> before;
  std::array<uint64_t, 4> part;
  uint64_t canonical_bytes;
  uint32_t page;
  uint32_t kind;
  std::array<int32_t, kPageTokens> tokens;
  std::array<uint64_t, 2> zeros;
};
static_assert(sizeof(Fields) == kRedisHeadBytes);

Fields fields_of(const Head& head, uint64_t payload_hash) {
  Fields fields = {.magic = kMagic,
                   .head_hash = 0,
                   .payload_hash = payload_hash,
                   .payload_bytes = head.part.bytes(),
                   .name = head.name.bytes,
                   .before = head.before.bytes,
                   .part = {head.part.first, head.part.length, head.part.stride, head.part.count},
                   .canonical_bytes = head.canonical_bytes,
                   .page = head.page,
                   .kind = static_cast<uint32_t>(head.kind),
                   .tokens = head.tokens,
                   .zeros = {}};
  fields.head_hash = base::content_hash(reinterpret_cast<const std::byte*>(&fields) + kHashedFrom,
                                        sizeof(fields) - kHashedFrom);
  return fields;
}

bool is_whole(const Fields& fields) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&fields);
  return fields.magic == kMagic &&
         fields.head_hash == base::content_hash(bytes + kHashedFrom, sizeof(fields) - kHashedFrom);
}

// It comes from a server: whatever the numbers are, sums of them must not overflow.
bool is_within(const Part& part, uint64_t canonical_bytes) {
  if (canonical_bytes > kMaxCanonicalBytes || part.length == 0 || part.count == 0) return false;
  if (part.count > kMaxRedisPieces) return false;
  if (part.length > canonical_bytes || part.first > canonical_bytes - part.length) return false;
  if (part.count == 1) return part.stride <= kMaxCanonicalBytes;
  if (part.stride < part.length) return false;
  return part.count - 1 <= (canonical_bytes - part.length - part.first) / part.stride;
}

}  // namespace

std::string redis_key(const Name& name, Kind kind) {
  return fmt::format("wideep:1:{{{}}}{}", name.hex(), kind == Kind::kState ? ":state" : "");
}

std::string redis_field(const Part& part) {
  return fmt::format("{}:{}:{}:{}", part.first, part.length, part.stride, part.count);
}

std::optional<Part> parse_redis_field(std::string_view field, uint64_t canonical_bytes) {
  std::array<uint64_t, 4> numbers = {};
  const char* at = field.data();
  const char* const end = at + field.size();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != ':')) return std::nullopt;
    const auto [stop, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = stop;
  }
  const Part part = {
      .first = numbers[0], .length = numbers[1], .stride = numbers[2], .count = numbers[3]};
  if (at != end || !is_within(part, canonical_bytes)) return std::nullopt;
  return part;
}

std::array<char, kRedisHeadBytes> redis_value_head(const Head& head, uint64_t payload_hash) {
  return std::bit_cast<std::array<char, kRedisHeadBytes>>(fields_of(head, payload_hash));
}

std::optional<Head> parse_redis_value_head(std::string_view value) {
  if (value.size() < kRedisHeadBytes) return std::nullopt;
  Fields found;
  std::memcpy(&found, value.data(), sizeof(found));
  if (!is_whole(found)) return std::nullopt;
  const Part part = {.first = found.part[0],
                     .length = found.part[1],
                     .stride = found.part[2],
                     .count = found.part[3]};
  const bool is_known = found.kind <= static_cast<uint32_t>(Kind::kState);
  if (!is_known || !is_within(part, found.canonical_bytes)) return std::nullopt;
  Head head = {.name = {.bytes = found.name},
               .before = {.bytes = found.before},
               .kind = static_cast<Kind>(found.kind),
               .page = found.page,
               .tokens = found.tokens,
               .canonical_bytes = found.canonical_bytes,
               .part = part};
  // What has no place in a head is zero.
  const Fields expected = fields_of(head, found.payload_hash);
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) return std::nullopt;
  return head;
}

// A head that is whole and other than the one that is wanted is of another record; one that is not
// whole says nothing.
RedisValue check_redis_value(std::string_view value, const Head& wanted) {
  const RedisValue damaged{.result = FetchResult::kDamaged, .payload = {}};
  if (value.size() < kRedisHeadBytes) return damaged;
  Fields found;
  std::memcpy(&found, value.data(), sizeof(found));
  const auto* bytes = reinterpret_cast<const std::byte*>(value.data());
  if (!is_whole(found)) return damaged;
  const Fields expected = fields_of(wanted, found.payload_hash);
  if (std::memcmp(&found, &expected, sizeof(found)) != 0) return {};
  const std::span payload(bytes + kRedisHeadBytes, value.size() - kRedisHeadBytes);
  if (payload.size() != wanted.part.bytes() ||
      base::content_hash(payload.data(), payload.size()) != found.payload_hash) {
    return damaged;
  }
  return {.result = FetchResult::kWhole, .payload = payload};
}

}  // namespace wideep::store
