// SPDX-License-Identifier: Apache-2.0
//
// What a text may be: regular expressions over bytes that call rules, which may call each other and
// themselves. All ways of saying it (regular expressions, grammars, JSON schemas, calls of tools)
// become this, and this becomes a Grammar (grammar/grammar.h).
//
//   Rules rules;
//   const int list = rules.add("list");
//   rules.define(list, sequence({text("["), repeat(call(list), 0, kNoMax), text("]")}));
//
// Text is UTF-8: what matches a character matches all bytes of it. The bytes 0xFE and 0xFF, which
// no UTF-8 has, stand around the name of a special token (special_token).
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::grammar {

struct ExpressionNode;
using Expression = std::shared_ptr<const ExpressionNode>;

inline constexpr int kNoMax = -1;

struct ExpressionNode {
  enum class Kind : uint8_t {
    kText,
    kByte,
    kSequence,
    kChoice,
    kRepeat,
    kCall,
    kWithout,
    kBoth,
    kExcept
  };
  Kind kind = Kind::kText;
  std::string text = {};               // kText: these bytes; kWithout: the end
  uint8_t first = 0, last = 0;         // kByte: any one of these
  std::vector<Expression> parts = {};  // kSequence, kChoice; kRepeat: one; kBoth, kExcept: two
  int min = 0, max = kNoMax;           // kRepeat
  int rule = 0;                        // kCall
};

Expression text(std::string_view bytes);
Expression byte_range(uint8_t first, uint8_t last);
Expression sequence(std::vector<Expression> parts);
// Without parts: matches nothing.
Expression choice(std::vector<Expression> parts);
// max: kNoMax or at least `min`.
Expression repeat(Expression part, int min, int max);
Expression optional(Expression part);
Expression call(int rule);
Expression nothing();  // matches no text, not even the empty one

// A token that has no text, by its name in the tokenizer: "<|tool_call|>".
Expression special_token(std::string_view name);
// The same as a token or spelled out: whether a model's marks have text differs between models.
Expression marker(std::string_view name);
// Texts of any length that do not contain `end`, but may end with a part of it. REQUIRES: not
// empty. Where `end` follows and does not end with what it begins with, it comes there for the
// first time.
Expression text_without(std::string_view end);
// Texts that match both; texts of the first that do not match the second. REQUIRES: no calls in
// them.
Expression both(Expression first, Expression second);
Expression except(Expression first, Expression second);

// Code points.
struct CharacterRange {
  char32_t first = 0, last = 0;
};
// Any order, may overlap; surrogates are left out.
using CharacterRanges = std::vector<CharacterRange>;
inline constexpr char32_t kLastCharacter = 0x10ffff;
CharacterRanges sorted(CharacterRanges ranges);    // disjoint, not adjacent
CharacterRanges inverted(CharacterRanges ranges);  // all others
CharacterRanges common(const CharacterRanges& a, const CharacterRanges& b);
Expression characters(const CharacterRanges& ranges);

// The rules that calls name.
class Rules {
 public:
  struct Rule {
    std::string name;  // for messages
    Expression body;   // null: not defined yet
  };
  int add(std::string name, Expression body = nullptr) {
    rules_.push_back({std::move(name), std::move(body)});
    return static_cast<int>(rules_.size()) - 1;
  }
  void define(int rule, Expression body) {
    rules_[static_cast<size_t>(rule)].body = std::move(body);
  }
  const Rule& operator[](int rule) const { return rules_[static_cast<size_t>(rule)]; }
  int size() const { return static_cast<int>(rules_.size()); }

  // What the schemas that have rules here have taken together (SchemaWork).
  size_t schema_steps = 0;

 private:
  std::vector<Rule> rules_;
};

}  // namespace wideep::grammar
