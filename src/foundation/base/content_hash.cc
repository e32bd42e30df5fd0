// SPDX-License-Identifier: Apache-2.0
#include "base/content_hash.h"

#include <fmt/format.h>
#define XXH_STATIC_LINKING_ONLY  // for XXH3_generateSecret_fromSeed
#include <xxhash.h>

#include <cstring>

#include "base/check.h"

namespace wideep::base {

uint64_t content_hash(const std::byte* bytes, size_t num_bytes) {
  return XXH3_64bits(bytes, num_bytes);
}

std::string content_hash_hex(std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return fmt::format("{:016x}", content_hash(bytes, text.size()));
}

std::array<uint64_t, 24> content_hash_secret() {
  std::array<uint64_t, 24> words{};
  static_assert(sizeof(words) == XXH3_SECRET_DEFAULT_SIZE);
  XXH3_generateSecret_fromSeed(words.data(), 0);  // of seed 0: the default one
  return words;
}

StreamedHash::StreamedHash() : state_(XXH3_createState()) {
  WIDEEP_CHECK(state_ != nullptr);
  reset();
}

StreamedHash::~StreamedHash() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void StreamedHash::reset() { XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_)); }

void StreamedHash::update(const std::byte* bytes, size_t num_bytes) {
  XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), bytes, num_bytes);
}

uint64_t StreamedHash::hash() const {
  return XXH3_64bits_digest(static_cast<const XXH3_state_t*>(state_));
}

void HashedCopy::copy(const std::byte* from, std::byte* to, size_t num_bytes) {
  std::memcpy(to, from, num_bytes);
  // The hash reads the copy, not the source: it also detects an error of the copy itself.
  hash_.update(to, num_bytes);
}

}  // namespace wideep::base
