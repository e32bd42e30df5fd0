// SPDX-License-Identifier: Apache-2.0
//
// A parser of classes that computes with ICU's sets: union for what stands side by side, retainAll
// for '&&'. The result is written as ranges, so that PCRE2 sees neither intersections nor its own
// tables, which may be of another Unicode version.
#include "tokenizer/character_set.h"

#include <fmt/format.h>
#include <unicode/uniset.h>

#include <algorithm>
#include <array>

#include "base/printable.h"
#include "base/try.h"
#include "tokenizer/unicode_newer.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

// The general categories on which the engines' tables agree (see newer_categories()), and one
// script.
constexpr std::array<std::string_view, 29> kProperties = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Han"};

constexpr int kMaxDepth = 8;

class ClassParser {
 public:
  explicit ClassParser(std::string_view regex) : regex_(regex) {}

  Result<icu::UnicodeSet> parse(int depth) {
    if (depth > kMaxDepth) return refuse("classes nested more than eight times");
    ++at_;  // '['
    const bool negated = take("^");
    if (next_is("]")) return refuse("an empty class or unescaped ']'");
    icu::UnicodeSet result(0, 0x10FFFF), operand;
    while (!next_is("]")) {
      if (at_ == regex_.size()) return refuse("a class without ']'");
      if (take("&&")) {
        result.retainAll(operand);
        operand.clear();
        continue;
      }
      WIDEEP_TRY(item(depth, &operand));
    }
    ++at_;
    result.retainAll(operand);
    if (negated) result.complement();
    return result;
  }

  size_t at() const { return at_; }

 private:
  std::string_view rest() const { return regex_.substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  Status refuse(std::string_view what) const { return invalid_input(std::string(what)); }

  Status item(int depth, icu::UnicodeSet* set) {
    if (next_is("[:")) return refuse("a POSIX class");
    if (next_is("[")) {
      WIDEEP_TRY_ASSIGN(const icu::UnicodeSet inner, parse(depth + 1));
      set->addAll(inner);
      return {};
    }
    if (next_is("\\p{") || next_is("\\P{")) return property(set);
    for (const char* name : {"\\s", "\\S", "\\d"}) {
      if (take(name))
        return add(name == std::string_view("\\d") ? "Nd" : "White_Space",
                   name == std::string_view("\\S"), set);
    }
    if (next_is("--") || next_is("~~")) return refuse("a '-' that makes no range of characters");
    WIDEEP_TRY_ASSIGN(const char32_t first, character());
    char32_t last = first;
    if (next_is("-") && !next_is("-]")) {
      ++at_;
      if (next_is("[") || next_is("\\p") || next_is("\\P") || next_is("\\s") || next_is("\\S") ||
          next_is("\\d") || next_is("&&")) {
        return refuse("a '-' that makes no range of characters");
      }
      WIDEEP_TRY_ASSIGN(last, character());
      if (last < first) return refuse("a range that ends before its start");
    }
    set->add(static_cast<UChar32>(first), static_cast<UChar32>(last));
    return {};
  }

  Result<char32_t> character() {
    if (at_ == regex_.size()) return refuse("a class without ']'");
    if (!take("\\")) {
      const char32_t c = first_code_point(rest());
      at_ += first_unit(rest()).bytes;
      return c;
    }
    const char c = rest().empty() ? '\0' : rest()[0];
    ++at_;
    constexpr std::string_view kNames = "rntf", kValues = "\r\n\t\f";
    const size_t name = kNames.find(c);
    if (name != std::string_view::npos) return static_cast<char32_t>(kValues[name]);
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c > ' ' && c < 0x7F && !is_letter && (c < '0' || c > '9')) return static_cast<char32_t>(c);
    return refuse(fmt::format("the escape '\\{}'", base::printable(std::string_view(&c, 1))));
  }

  Status property(icu::UnicodeSet* set) {
    const size_t close = rest().find('}');
    const std::string_view name = rest().substr(3, close == std::string_view::npos ? 0 : close - 3);
    if (!is_known_property(name)) {
      return refuse(fmt::format("the property '{}'", base::printable(rest().substr(0, close + 1))));
    }
    const bool negated = regex_[at_ + 1] == 'P';
    at_ += close + 1;
    return add(name, negated, set);
  }

  Status add(std::string_view name, bool negated, icu::UnicodeSet* set) const {
    UErrorCode error = U_ZERO_ERROR;
    icu::UnicodeSet members(icu::UnicodeString::fromUTF8(fmt::format("[\\p{{{}}}]", name)), error);
    if (U_FAILURE(error)) return failed(fmt::format("ICU: {}", u_errorName(error)));
    for (const CategoryRange& range : newer_categories()) {
      const bool is_member = name == "Han" ? range.category == "Lo" && range.first >= 0x20000
                                           : range.category.starts_with(name);
      if (is_member)
        members.add(static_cast<UChar32>(range.first), static_cast<UChar32>(range.last));
    }
    if (negated) members.complement();
    set->addAll(members);
    return {};
  }

  std::string_view regex_;
  size_t at_ = 0;
};

}  // namespace

bool is_known_property(std::string_view name) {
  return std::find(kProperties.begin(), kProperties.end(), name) != kProperties.end();
}

Result<std::string> class_as_ranges(std::string_view regex, size_t* bytes) {
  ClassParser parser(regex);
  WIDEEP_TRY_ASSIGN(icu::UnicodeSet set, parser.parse(1));
  *bytes = parser.at();
  // A complement is written as one, because ranges across the surrogates are no UTF-8.
  const bool negated = set.contains(UChar32{0x10FFFF});
  if (negated) set.complement();
  set.remove(UChar32{0xD800}, UChar32{0xDFFF});
  if (set.isEmpty()) return invalid_input("a class of no or of all characters");
  std::string out = negated ? "[^" : "[";
  for (int32_t i = 0; i < set.getRangeCount(); ++i) {
    out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(set.getRangeStart(i)),
                       static_cast<uint32_t>(set.getRangeEnd(i)));
  }
  return out + "]";
}

}  // namespace wideep::tokenizer
