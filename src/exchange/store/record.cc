// SPDX-License-Identifier: Apache-2.0
#include "store/record.h"

#include "base/sha256.h"

namespace wideep::store {
namespace {

Name first_half(const base::Sha256& hash) {
  const auto digest = hash.digest();
  Name name;
  std::copy_n(digest.begin(), name.bytes.size(), name.bytes.begin());
  return name;
}

}  // namespace

std::string Name::hex() const {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The length of the class separates it from the salt.
Name root_name(std::string_view record_class, std::string_view salt) {
  const uint64_t length = record_class.size();
  base::Sha256 hash;
  hash.update(&length, sizeof(length));
  hash.update(record_class.data(), record_class.size());
  hash.update(salt.data(), salt.size());
  return first_half(hash);
}

Name page_name(const Name& before, int32_t form, std::span<const int32_t, kPageTokens> tokens) {
  base::Sha256 hash;
  hash.update(before.bytes.data(), before.bytes.size());
  hash.update(&form, sizeof(form));
  hash.update(tokens.data(), tokens.size_bytes());
  return first_half(hash);
}

std::optional<Head> PageWalk::next() {
  if (rest_.size() < kPageTokens) return std::nullopt;
  Head head{.name = {}, .before = before_, .page = page_++, .part = {}};
  std::ranges::copy(rest_.first<kPageTokens>(), head.tokens.begin());
  head.name = before_ = page_name(before_, /*form=*/0, head.tokens);
  rest_ = rest_.subspan(kPageTokens);
  return head;
}

uint64_t copy_overlap(const Part& from_part, std::span<const std::byte> from, const Part& to_part,
                      std::span<std::byte> to) {
  uint64_t copied = 0;
  for_each_overlap(from_part, to_part, [&](const Overlap& overlap) {
    std::memcpy(to.data() + overlap.to_at, from.data() + overlap.from_at, overlap.bytes);
    copied += overlap.bytes;
  });
  return copied;
}

}  // namespace wideep::store
