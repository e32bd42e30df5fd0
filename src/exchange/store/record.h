// SPDX-License-Identifier: Apache-2.0
//
// What is kept by name: pages of the KV cache, and snapshots of states at a page's end.
//
// A name is the first half of SHA-256 over the name before and what is added:
//
//   root       class · salt
//   page n     name of page n − 1 · form · its tokens
//
// class: everything else that decides bytes: checkpoint, layout of the canonical form, instruction
// set, sums that a layout splits (engine/run/page_geometry.h). form: the keys and values of the page
// depend on more than its tokens (schedule/sequence_pages.h); 0: they do not.
// Equal name means equal bytes. A record has its tokens beside its name, and whoever takes it
// compares them: the hash finds, tokens decide.
//
// The canonical form of a record is that of one rank with all layers and heads. A rank that holds
// some of them has a part of it: pieces of equal length, equally far apart. Its payload is these
// pieces one after the other, as they lie in the memory of that rank. Parts that different layouts
// have written are cut and put together without a change of any value (copy_overlap).
//
// Thread safety: plain values; pure functions; a PageWalk has one thread.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace wideep::store {

inline constexpr size_t kPageTokens = 64;

struct Name {
  std::array<unsigned char, 16> bytes = {};
  auto operator<=>(const Name&) const = default;
  std::string hex() const;
};

// Of no tokens. salt: keeps those that use it apart from all others; "": none.
Name root_name(std::string_view record_class, std::string_view salt);
Name page_name(const Name& before, int32_t form, std::span<const int32_t, kPageTokens> tokens);

struct NameHash {
  size_t operator()(const Name& name) const {
    size_t value = 0;
    std::memcpy(&value, name.bytes.data(), sizeof(value));
    return value;
  }
};

enum class Kind : uint8_t { kPage, kState };

// Pieces of the canonical form, in bytes: piece i is [first + i · stride, … + length).
// Invariant: length ≤ stride where there are several.
struct Part {
  uint64_t first = 0;
  uint64_t length = 0;
  uint64_t stride = 0;
  uint64_t count = 0;

  static Part whole(uint64_t bytes) {
    return {.first = 0, .length = bytes, .stride = bytes, .count = 1};
  }
  uint64_t bytes() const { return length * count; }
  bool operator==(const Part&) const = default;
};

// Bytes that two parts have in common, without a gap: where they are in either payload.
struct Overlap {
  uint64_t from_at = 0;
  uint64_t to_at = 0;
  uint64_t bytes = 0;
};

// visit(const Overlap&), in the order of `to`. Walks the pieces of `to`; pieces of `from` are in
// order, so each is found by division.
template <typename Visit>
void for_each_overlap(const Part& from, const Part& to, Visit visit) {
  if (from.bytes() == 0 || to.bytes() == 0) return;
  for (uint64_t i = 0; i < to.count; ++i) {
    const uint64_t begin = to.first + i * to.stride;
    const uint64_t end = begin + to.length;
    if (end <= from.first) continue;
    uint64_t j = begin <= from.first || from.stride == 0 ? 0 : (begin - from.first) / from.stride;
    for (; j < from.count; ++j) {
      const uint64_t piece = from.first + j * from.stride;
      if (piece >= end) break;
      const uint64_t low = std::max(begin, piece);
      const uint64_t high = std::min(end, piece + from.length);
      if (low >= high) continue;
      visit(Overlap{.from_at = j * from.length + (low - piece),
                    .to_at = i * to.length + (low - begin),
                    .bytes = high - low});
    }
  }
}

// Copies what both parts have from one payload to the other. Returns the number of bytes.
uint64_t copy_overlap(const Part& from_part, std::span<const std::byte> from, const Part& to_part,
                      std::span<std::byte> to);

struct Head {
  Name name;    // of all tokens up to the page's end
  Name before;  // of those up to its beginning
  Kind kind = Kind::kPage;
  uint32_t page = 0;  // its number in the sequence, from 0
  std::array<int32_t, kPageTokens> tokens = {};
  uint64_t canonical_bytes = 0;
  Part part;
};

// The whole pages of a sequence, of form 0, from the first one on. A name is computed only when its
// page is asked for.
class PageWalk {
 public:
  // tokens: outlive the walk.
  PageWalk(std::string_view record_class, std::string_view salt, std::span<const int32_t> tokens)
      : before_(root_name(record_class, salt)), rest_(tokens) {}

  // Without its sizes; nullopt: there is none.
  std::optional<Head> next();

 private:
  Name before_;
  uint32_t page_ = 0;
  std::span<const int32_t> rest_;
};

// The tokens of a prompt whose pages can be those of others: not the last one, as its logits are
// needed.
inline std::span<const int32_t> reusable(std::span<const int32_t> prompt) {
  return prompt.first(std::max(prompt.size(), size_t{1}) - 1);
}

}  // namespace wideep::store
