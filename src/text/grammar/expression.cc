// SPDX-License-Identifier: Apache-2.0
//
// The only algorithm here is that of characters(): a range of code points becomes products of byte
// ranges. It is cut where the length of UTF-8 changes; within one length, at the first byte in
// which both ends differ, there are three parts: the rest of the low end, whole blocks, and the
// rest of the high end.
//
//   U+0090 … U+0151   c2 90…bf  |  c3…c4 80…bf  |  c5 80…91
#include "grammar/expression.h"

#include <algorithm>
#include <array>
#include <utility>

#include "grammar/special_bytes.h"

namespace wideep::grammar {
namespace {

using Kind = ExpressionNode::Kind;

Expression make(ExpressionNode node) {
  return std::make_shared<const ExpressionNode>(std::move(node));
}

// ---- UTF-8 ----

struct Encoded {
  std::array<uint8_t, 4> bytes = {};
  int length = 0;
};

Encoded encoded(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<uint8_t>(0x80 | ((c >> shift) & 0x3f)); };
  if (c < 0x80) return {{static_cast<uint8_t>(c)}, 1};
  if (c < 0x800) return {{static_cast<uint8_t>(0xc0 | (c >> 6)), tail(0)}, 2};
  if (c < 0x10000) return {{static_cast<uint8_t>(0xe0 | (c >> 12)), tail(6), tail(0)}, 3};
  return {{static_cast<uint8_t>(0xf0 | (c >> 18)), tail(12), tail(6), tail(0)}, 4};
}

// The strings of equal length from `low` to `high`, from byte `at` on, as products of byte ranges.
void add_between(const Encoded& low, const Encoded& high, int at, std::vector<Expression> before,
                 std::vector<Expression>* out) {
  const auto i = static_cast<size_t>(at);
  const bool is_last = at + 1 == low.length;
  const auto with = [&](uint8_t first, uint8_t last) {
    std::vector<Expression> longer = before;
    longer.push_back(byte_range(first, last));
    return longer;
  };
  if (is_last) {
    out->push_back(sequence(with(low.bytes[i], high.bytes[i])));
    return;
  }
  if (low.bytes[i] == high.bytes[i]) {
    return add_between(low, high, at + 1, with(low.bytes[i], low.bytes[i]), out);
  }
  Encoded end = low, begin = high;
  bool low_is_first = true, high_is_last = true;
  for (size_t j = i + 1; j < static_cast<size_t>(low.length); ++j) {
    low_is_first &= low.bytes[j] == 0x80;
    high_is_last &= high.bytes[j] == 0xbf;
    end.bytes[j] = 0xbf;
    begin.bytes[j] = 0x80;
  }
  uint8_t first = low.bytes[i], last = high.bytes[i];
  if (!low_is_first) add_between(low, end, at + 1, with(first, first), out), ++first;
  if (!high_is_last) --last;
  if (first <= last) {
    std::vector<Expression> whole = with(first, last);
    for (int j = at + 1; j < low.length; ++j) whole.push_back(byte_range(0x80, 0xbf));
    out->push_back(sequence(std::move(whole)));
  }
  if (!high_is_last) add_between(begin, high, at + 1, with(high.bytes[i], high.bytes[i]), out);
}

}  // namespace

Expression text(std::string_view bytes) {
  return make({.kind = Kind::kText, .text = std::string(bytes)});
}

Expression byte_range(uint8_t first, uint8_t last) {
  return make({.kind = Kind::kByte, .first = first, .last = last});
}

Expression sequence(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::kSequence, .parts = std::move(parts)});
}

Expression choice(std::vector<Expression> parts) {
  if (parts.size() == 1) return std::move(parts.front());
  return make({.kind = Kind::kChoice, .parts = std::move(parts)});
}

Expression repeat(Expression part, int min, int max) {
  return make({.kind = Kind::kRepeat, .parts = {std::move(part)}, .min = min, .max = max});
}

Expression optional(Expression part) { return repeat(std::move(part), 0, 1); }

Expression call(int rule) { return make({.kind = Kind::kCall, .rule = rule}); }

Expression nothing() { return choice({}); }

Expression special_token(std::string_view name) { return text(special_bytes(name)); }

Expression marker(std::string_view name) { return choice({text(name), special_token(name)}); }

Expression text_without(std::string_view end) {
  return make({.kind = Kind::kWithout, .text = std::string(end)});
}

Expression both(Expression first, Expression second) {
  return make({.kind = Kind::kBoth, .parts = {std::move(first), std::move(second)}});
}

Expression except(Expression first, Expression second) {
  return make({.kind = Kind::kExcept, .parts = {std::move(first), std::move(second)}});
}

CharacterRanges sorted(CharacterRanges ranges) {
  std::ranges::sort(ranges, {}, &CharacterRange::first);
  CharacterRanges merged;
  for (const CharacterRange& each : ranges) {
    if (!merged.empty() && each.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, each.last);
    } else {
      merged.push_back(each);
    }
  }
  return merged;
}

CharacterRanges inverted(CharacterRanges ranges) {
  CharacterRanges others;
  char32_t next = 0;
  for (const CharacterRange& each : sorted(std::move(ranges))) {
    if (each.first > next) others.push_back({next, each.first - 1});
    next = each.last + 1;
  }
  if (next <= kLastCharacter) others.push_back({next, kLastCharacter});
  return others;
}

CharacterRanges common(const CharacterRanges& a, const CharacterRanges& b) {
  CharacterRanges neither = inverted(a);
  const CharacterRanges of_b = inverted(b);
  neither.insert(neither.end(), of_b.begin(), of_b.end());
  return inverted(std::move(neither));
}

Expression characters(const CharacterRanges& ranges) {
  // Where the length of UTF-8 changes, and around the surrogates.
  constexpr CharacterRange kParts[] = {
      {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x10000, kLastCharacter}};
  std::vector<Expression> alternatives;
  for (const CharacterRange& each : sorted(ranges)) {
    for (const CharacterRange& part : kParts) {
      const char32_t first = std::max(each.first, part.first);
      const char32_t last = std::min(each.last, part.last);
      if (first <= last) add_between(encoded(first), encoded(last), 0, {}, &alternatives);
    }
  }
  return choice(std::move(alternatives));
}

}  // namespace wideep::grammar
