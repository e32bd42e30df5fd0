// SPDX-License-Identifier: Apache-2.0
//
// How records lie in a server of Redis' protocol:
//
//   wideep:1:{<name>}         a hash, of a page: a field for each part of it that somebody wrote
//   wideep:1:{<name>}:state   the same, of a snapshot of states
//   field                     first:length:stride:count, the part, in decimal
//   value                     head, 384 bytes · payload
//
// 1 is the version: others are not seen, and expire. All that has one name is at one server of a
// cluster. The head, little-endian:
//
//      0  magic "wdpredis"                 64  part: first, length, stride, count (u64)
//      8  XXH3 of bytes 16 to 383          96  canonical bytes (u64)
//     16  XXH3 of the payload             104  page (u32), kind (u32)
//     24  bytes of the payload (u64)      112  tokens (64 × i32)
//     32  name, 16 bytes                  368  zeros
//     48  name before, 16 bytes
//
// Thread safety: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "store/place.h"
#include "store/record.h"

namespace wideep::store {

inline constexpr size_t kRedisHeadBytes = 384;
// What somebody else writes is not trusted with this side's time and memory.
inline constexpr size_t kMaxRedisParts = 64;                    // of a key
inline constexpr uint64_t kMaxRedisPieces = uint64_t{1} << 16;  // of a part

std::string redis_key(const Name& name, Kind kind);
std::string redis_field(const Part& part);
// nullopt: no field of this program, or no part of so many canonical bytes, or one of more than
// kMaxRedisPieces.
std::optional<Part> parse_redis_field(std::string_view field, uint64_t canonical_bytes);

std::array<char, kRedisHeadBytes> redis_value_head(const Head& head, uint64_t payload_hash);

// The head of a value, whatever record it is of. nullopt: it is none, or not whole, or its part is
// none.
std::optional<Head> parse_redis_value_head(std::string_view value);

struct RedisValue {
  FetchResult result = FetchResult::kMissing;
  std::span<const std::byte> payload;  // of kWhole, in `value`
};
// Whether the value is the record with this head, whose part is the field's. kMissing: it is
// another's, with the same name.
RedisValue check_redis_value(std::string_view value, const Head& wanted);

}  // namespace wideep::store
