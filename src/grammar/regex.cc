// SPDX-License-Identifier: Apache-2.0
#include "grammar/regex.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/try.h"
#include "grammar/text_reader.h"

namespace wideep::grammar {
namespace {

constexpr int kMostDepth = 128;
constexpr int kMostRepeats = 1'000'000;
constexpr size_t kMostBytes = size_t{1} << 16;  // a class of four bytes may take 5 kB

const CharacterRanges kDigits = {{'0', '9'}};
const CharacterRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterRanges kSpaces = {{'\t', '\r'}, {' ', ' '}};
// What ECMA-262 or Python takes for white space.
const CharacterRanges kAllSpaces = {{'\t', '\r'},     {0x1c, 0x20},     {0x85, 0x85},
                                    {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
                                    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                    {0x3000, 0x3000}, {0xfeff, 0xfeff}};
const CharacterRanges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// The ranges of \d and the like.
std::optional<CharacterRanges> class_of(char32_t letter) {
  switch (letter) {
    case 'd':
      return kDigits;
    case 'D':
      return inverted(kDigits);
    case 'w':
      return kWord;
    case 'W':
      return inverted(kWord);
    case 's':
      return kSpaces;
    case 'S':
      return inverted(kAllSpaces);
    default:
      return {};
  }
}

class Parser {
 public:
  Parser(std::string_view pattern, const RegexOptions& options)
      : options_(options), reader_(pattern) {}

  Result<Expression> parse() {
    if (reader_.rest().size() > kMostBytes) {
      return invalid_input(fmt::format("a pattern of more than {} bytes", kMostBytes));
    }
    WIDEEP_TRY_ASSIGN(Expression all, alternatives(true));
    if (!reader_.at_end()) return error("a ) without its (");
    return all;
  }

 private:
  Status error(std::string_view what) const { return reader_.error(what); }

  Expression written(const CharacterRanges& ranges) const {
    return options_.characters ? options_.characters(ranges) : characters(ranges);
  }
  Expression anything() const { return repeat(written({{0, kLastCharacter}}), 0, kNoMost); }

  // is_whole: nothing comes before or behind them.
  Result<Expression> alternatives(bool is_whole) {
    if (++depth_ > kMostDepth) return error(fmt::format("nested more than {} deep", kMostDepth));
    std::vector<Expression> found;
    do {
      WIDEEP_TRY_ASSIGN(Expression each, is_whole ? whole_alternative() : parts());
      found.push_back(std::move(each));
    } while (reader_.take('|'));
    --depth_;
    return choice(std::move(found));
  }

  // "^…$": the only place where anchors mean something.
  Result<Expression> whole_alternative() {
    const bool from_begin = take_begin();
    if (const size_t inside = group_of_all(); inside > 0) {
      reader_.skip(inside);
      WIDEEP_TRY_ASSIGN(Expression group, alternatives(true));
      if (!reader_.take(')')) return error("expected )");
      const bool to_end = take_end();
      // A group with anchors of its own inside others: "^(^a|b)".
      if (options_.searches && (from_begin || to_end)) {
        return error("^ or $ around a group that is all of the pattern: write it inside");
      }
      return group;
    }
    WIDEEP_TRY_ASSIGN(Expression middle, parts());
    const bool to_end = take_end();
    if (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      return error("^ and $ are known only at the ends of the pattern and of its alternatives");
    }
    if (!options_.searches) return middle;
    std::vector<Expression> all;
    if (!from_begin) all.push_back(anything());
    all.push_back(std::move(middle));
    if (!to_end) all.push_back(anything());
    return sequence(std::move(all));
  }
  bool take_begin() {
    bool taken = false;
    while (reader_.take('^') || reader_.take("\\A")) taken = true;
    return taken;
  }
  bool take_end() {
    bool taken = false;
    while (reader_.take('$') || reader_.take("\\Z") || reader_.take("\\z")) taken = true;
    return taken;
  }

  // Whether an unnamed group that has not begun yet goes on to the end of the pattern, and has
  // anchors: the length of its beginning, else 0.
  size_t group_of_all() const {
    const std::string_view rest = reader_.rest();
    const size_t begin = rest.starts_with("(?:") ? 3 : rest.starts_with("(") ? 1 : 0;
    if (begin == 0 || (begin == 1 && rest.starts_with("(?"))) return 0;
    int depth = 0;
    bool in_class = false;
    for (size_t i = 0; i < rest.size(); ++i) {
      if (rest[i] == '\\') {
        ++i;
      } else if (in_class) {
        in_class = rest[i] != ']';
      } else if (rest[i] == '[') {
        in_class = true;
        // A first ] belongs to no class in ECMA-262, and to it in Python; both are refused below.
      } else if (rest[i] == '(') {
        ++depth;
      } else if (rest[i] == ')' && --depth == 0) {
        const bool is_last = i + 1 == rest.size();
        const bool has_anchors = rest.find_first_of("^$") != std::string_view::npos;
        return is_last && has_anchors ? begin : 0;
      }
    }
    return 0;
  }

  bool at_end_of_parts() const {
    if (reader_.at_end()) return true;
    const char next = reader_.peek();
    return next == '|' || next == ')' || next == '$' || next == '^' ||
           reader_.rest().starts_with("\\Z") || reader_.rest().starts_with("\\z");
  }

  Result<Expression> parts() {
    std::vector<Expression> found;
    while (!at_end_of_parts()) {
      WIDEEP_TRY_ASSIGN(Expression each, atom());
      WIDEEP_TRY_ASSIGN(each, repeated(std::move(each)));
      found.push_back(std::move(each));
    }
    return sequence(std::move(found));
  }

  Result<Expression> repeated(Expression part) {
    int least = 0, most = kNoMost;
    if (reader_.take('*')) {
    } else if (reader_.take('+')) {
      least = 1;
    } else if (reader_.take('?')) {
      most = 1;
    } else if (const auto bounds = reader_.take_bounds()) {
      least = bounds->least;
      most = bounds->most;
      if (most != kNoMost && least > most) return error("expected {m,n} with m not above n");
      if (least > kMostRepeats || most > kMostRepeats) {
        return error(fmt::format("more than {} repeats", kMostRepeats));
      }
    } else {
      return part;
    }
    reader_.take('?');  // lazy: the same texts
    if (!reader_.at_end() && (reader_.peek() == '+' || reader_.peek() == '*')) {
      return error("a repeat of a repeat; possessive ones are not supported");
    }
    return repeat(std::move(part), least, most);
  }

  Result<Expression> atom() {
    if (reader_.take('(')) return group();
    if (reader_.take('[')) return bracket();
    if (reader_.take('.')) return written(inverted(kLineEnds));
    if (reader_.take('\\')) {
      if (reader_.at_end()) return error("a \\ at the end");
      const char32_t letter = static_cast<uint8_t>(reader_.peek());
      if (letter == 'b' || letter == 'B') return error("\\b and \\B are not supported");
      if ((letter >= '1' && letter <= '9') || letter == 'k') {
        return error("references to groups are not supported");
      }
      WIDEEP_TRY_ASSIGN(const CharacterRanges escaped, escape());
      return written(escaped);
    }
    if (reader_.peek() == '*' || reader_.peek() == '+' || reader_.peek() == '?') {
      return error("nothing to repeat");
    }
    WIDEEP_TRY_ASSIGN(const char32_t c, reader_.character());
    return written({{c, c}});
  }

  Result<Expression> group() {
    if (reader_.take('?')) {
      const bool is_look_behind =
          reader_.rest().starts_with("<=") || reader_.rest().starts_with("<!");
      if (reader_.take(':')) {
      } else if (!is_look_behind && (reader_.take("P<") || reader_.take('<'))) {
        while (!reader_.at_end() && reader_.peek() != '>') reader_.skip(1);
        if (!reader_.take('>')) return error("a name of a group without its >");
      } else {
        return error("look-around, flags and comments, (?…), are not supported");
      }
    }
    WIDEEP_TRY_ASSIGN(Expression all, alternatives(false));
    if (!reader_.at_end() && (reader_.peek() == '^' || reader_.peek() == '$')) {
      return error("^ and $ are known only at the ends of the pattern and of its alternatives");
    }
    if (!reader_.take(')')) return error("expected )");
    return all;
  }

  Result<Expression> bracket() {
    const bool is_inverted = reader_.take('^');
    CharacterRanges ranges;
    if (reader_.rest().starts_with("]")) return error("a class that begins with ]: write \\]");
    while (!reader_.take(']')) {
      if (reader_.at_end()) return error("a [ without its ]");
      WIDEEP_TRY_ASSIGN(const CharacterRanges first, class_member());
      const bool is_range = reader_.rest().starts_with("-") && !reader_.rest().starts_with("-]");
      if (!is_range) {
        ranges.insert(ranges.end(), first.begin(), first.end());
        continue;
      }
      reader_.skip(1);
      if (reader_.at_end()) return error("a [ without its ]");
      WIDEEP_TRY_ASSIGN(const CharacterRanges last, class_member());
      const auto is_one = [](const CharacterRanges& each) {
        return each.size() == 1 && each[0].first == each[0].last;
      };
      if (!is_one(first) || !is_one(last) || first[0].first > last[0].first) {
        return error("expected a range from a character to a later one");
      }
      ranges.push_back({first[0].first, last[0].first});
    }
    return written(is_inverted ? inverted(ranges) : sorted(ranges));
  }

  Result<CharacterRanges> class_member() {
    if (!reader_.take('\\')) {
      WIDEEP_TRY_ASSIGN(const char32_t c, reader_.character());
      return CharacterRanges{{c, c}};
    }
    if (reader_.take('b')) return CharacterRanges{{'\b', '\b'}};
    return escape();
  }

  // Behind the \.
  Result<CharacterRanges> escape() {
    if (reader_.at_end()) return error("a \\ at the end");
    if (const auto known = class_of(static_cast<uint8_t>(reader_.peek()))) {
      reader_.skip(1);
      return *known;
    }
    if (reader_.peek() == 'p' || reader_.peek() == 'P') return error("\\p{…} is not supported");
    WIDEEP_TRY_ASSIGN(const char32_t c, reader_.escaped_character());
    return CharacterRanges{{c, c}};
  }

  const RegexOptions& options_;
  TextReader reader_;
  int depth_ = 0;
};

}  // namespace

Result<Expression> parse_regex(std::string_view pattern, const RegexOptions& options) {
  return Parser(pattern, options).parse();
}

}  // namespace wideep::grammar
