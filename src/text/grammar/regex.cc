// SPDX-License-Identifier: Apache-2.0
//
// A recursive descent. Anchors and look-ahead mean something only at the ends of the text, so the
// parser knows where it is: to_end_of_text() reads parts that go to the end, parts() those inside a
// group that more follows. A group that reaches to the end is opened (last_group), so that anchors
// in it are at the end, too.
//
//   A(?=B)C   is   A, then texts that match both B… and C
//   A(?!B)C   is   A, then texts that match C and not B…
//
// Classes are kept as what they are in each dialect (Class), and written as what all of them have
// in common; in what must not match, as what any of them has. Then no dialect objects to the
// answer.
#include "grammar/regex.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/try.h"
#include "grammar/text_reader.h"

namespace wideep::grammar {
namespace {

constexpr int kMaxDepth = 128;
constexpr int kMaxLookAheads = 32;
constexpr int kMaxRepeats = 1'000'000;
constexpr size_t kMaxBytes = size_t{1} << 16;  // a class of four bytes may take 5 kB

const CharacterRanges kDigits = {{'0', '9'}};
const CharacterRanges kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
// White space in RE2 and Go, in ECMA-262, and in Python.
const CharacterRanges kSpaces[] = {{{'\t', '\r'}, {' ', ' '}},
                                   {{'\t', '\r'},
                                    {' ', ' '},
                                    {0xa0, 0xa0},
                                    {0x1680, 0x1680},
                                    {0x2000, 0x200a},
                                    {0x2028, 0x2029},
                                    {0x202f, 0x202f},
                                    {0x205f, 0x205f},
                                    {0x3000, 0x3000},
                                    {0xfeff, 0xfeff}},
                                   {{'\t', '\r'},
                                    {0x1c, 0x20},
                                    {0x85, 0x85},
                                    {0xa0, 0xa0},
                                    {0x1680, 0x1680},
                                    {0x2000, 0x200a},
                                    {0x2028, 0x2029},
                                    {0x202f, 0x202f},
                                    {0x205f, 0x205f},
                                    {0x3000, 0x3000}}};
const CharacterRanges kLineFeed = {{'\n', '\n'}};
const CharacterRanges kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

// What a class is in each of these dialects. What is generated is in the class in all of them,
// however it is made of others: "[^\s\S]" is nothing.
struct Class {
  CharacterRanges ranges[std::size(kSpaces)];

  static Class of(const CharacterRanges& same) {
    Class all;
    for (CharacterRanges& each : all.ranges) each = same;
    return all;
  }
  Class inverse() const {
    Class all;
    for (size_t i = 0; i < std::size(ranges); ++i) all.ranges[i] = inverted(ranges[i]);
    return all;
  }
  void add(const Class& other) {
    for (size_t i = 0; i < std::size(ranges); ++i) {
      ranges[i].insert(ranges[i].end(), other.ranges[i].begin(), other.ranges[i].end());
    }
  }
  CharacterRanges in_any() const {
    CharacterRanges all;
    for (const CharacterRanges& each : ranges) all.insert(all.end(), each.begin(), each.end());
    return sorted(std::move(all));
  }
  CharacterRanges in_all() const { return common(common(ranges[0], ranges[1]), ranges[2]); }
};

// The ranges of \d and the like.
std::optional<Class> class_of(char32_t letter) {
  switch (letter) {
    case 'd':
      return Class::of(kDigits);
    case 'w':
      return Class::of(kWord);
    case 's':
      return Class{{kSpaces[0], kSpaces[1], kSpaces[2]}};
    case 'D':
    case 'W':
    case 'S':
      return class_of(letter - 'A' + 'a')->inverse();
    default:
      return {};
  }
}

class Parser {
 public:
  Parser(std::string_view pattern, const RegexOptions& options)
      : options_(options), reader_(pattern) {}

  Result<Expression> parse() {
    if (reader_.rest().size() > kMaxBytes) {
      return invalid_input(fmt::format("a pattern of more than {} bytes", kMaxBytes));
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
  // What must not follow is what any of the dialects means.
  Expression written(const Class& of) const {
    return written(is_excluded_ ? of.in_any() : of.in_all());
  }
  Expression anything() const { return repeat(written({{0, kLastCharacter}}), 0, kNoMax); }

  // is_whole: nothing comes before or behind them.
  Result<Expression> alternatives(bool is_whole) {
    if (++depth_ > kMaxDepth) return error(fmt::format("nested more than {} deep", kMaxDepth));
    std::vector<Expression> found;
    do {
      WIDEEP_TRY_ASSIGN(Expression each, is_whole ? whole_alternative() : parts());
      found.push_back(std::move(each));
    } while (reader_.take('|'));
    --depth_;
    return choice(std::move(found));
  }

  // One of the pattern's alternatives.
  Result<Expression> whole_alternative() {
    const bool from_begin = take_begin();
    if (const size_t inside = from_begin ? 0 : group_of_all(); inside > 0) {
      reader_.skip(inside);
      WIDEEP_TRY_ASSIGN(Expression group, alternatives(true));
      if (!reader_.take(')')) return error("expected )");
      return group;
    }
    const bool is_front = from_begin || !options_.searches;
    WIDEEP_TRY_ASSIGN(Expression rest, to_end_of_text(options_.searches, is_front));
    if (is_front) return rest;
    return sequence({anything(), std::move(rest)});
  }

  // Parts up to the end of the text, the only place where $ and look-ahead mean something.
  // searches: more may follow, unless $ says no. is_front: nothing comes before them.
  Result<Expression> to_end_of_text(bool searches, bool is_front) {
    std::vector<Expression> found;
    for (; !at_end_of_parts(); is_front = false) {
      if (const size_t begin = group_to_end(); begin > 0) {
        WIDEEP_TRY_ASSIGN(Expression group, last_group(begin, searches, is_front));
        found.push_back(std::move(group));
        return sequence(std::move(found));
      }
      WIDEEP_TRY_ASSIGN(Expression each, atom());
      WIDEEP_TRY_ASSIGN(each, repeated(std::move(each)));
      found.push_back(std::move(each));
    }
    if (begins_look_ahead()) {
      WIDEEP_TRY_ASSIGN(Expression rest, look_ahead(searches, is_front));
      found.push_back(std::move(rest));
      return sequence(std::move(found));
    }
    const bool to_end = take_end();
    if (!reader_.at_end() && reader_.peek() != '|' && reader_.peek() != ')') {
      return error("^ and $ are known only at the ends of the pattern and of its alternatives");
    }
    if (searches && !to_end) found.push_back(anything());
    return sequence(std::move(found));
  }

  // Each of which goes to the end of the text.
  Result<Expression> last_alternatives(bool searches, bool is_front) {
    if (++depth_ > kMaxDepth) return error(fmt::format("nested more than {} deep", kMaxDepth));
    std::vector<Expression> found;
    do {
      if (is_front) take_begin();
      WIDEEP_TRY_ASSIGN(Expression each, to_end_of_text(searches, is_front));
      found.push_back(std::move(each));
    } while (reader_.take('|'));
    --depth_;
    if (!reader_.take(')')) return error("expected )");
    return choice(std::move(found));
  }

  Result<Expression> last_group(size_t begin, bool searches, bool is_front) {
    const bool has_end = reader_.rest()[length_of_group() - 1] != ')';
    reader_.skip(begin);
    WIDEEP_TRY_ASSIGN(Expression group, last_alternatives(searches && !has_end, is_front));
    take_end();
    return group;
  }

  bool begins_look_ahead() const {
    return reader_.rest().starts_with("(?=") || reader_.rest().starts_with("(?!");
  }

  // The rest of the text, in an intersection with what is looked for, or in a difference.
  Result<Expression> look_ahead(bool searches, bool is_front) {
    if (++num_look_aheads_ > kMaxLookAheads) {
      return error(fmt::format("more than {} look-aheads", kMaxLookAheads));
    }
    const bool is_negative = reader_.rest().starts_with("(?!");
    reader_.skip(3);
    is_excluded_ ^= is_negative;
    WIDEEP_TRY_ASSIGN(Expression seen, last_alternatives(true, is_front));
    is_excluded_ ^= is_negative;
    if (!reader_.at_end() &&
        std::string_view("*+?{").find(reader_.peek()) != std::string_view::npos) {
      return error("a repeat of a look-ahead");
    }
    if (is_front) take_begin();
    WIDEEP_TRY_ASSIGN(Expression rest, to_end_of_text(searches, is_front));
    return is_negative ? except(std::move(rest), std::move(seen))
                       : both(std::move(rest), std::move(seen));
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

  // The length of a group's beginning; 0: what follows is none, or one of another kind.
  size_t length_of_begin() const {
    const std::string_view rest = reader_.rest();
    if (!rest.starts_with('(')) return 0;
    if (!rest.starts_with("(?")) return 1;
    if (rest.starts_with("(?:")) return 3;
    const bool has_name = rest.starts_with("(?P<") || (rest.starts_with("(?<") && rest.size() > 3 &&
                                                       rest[3] != '=' && rest[3] != '!');
    const size_t end = rest.find('>');
    return has_name && end != rest.npos ? end + 1 : 0;
  }
  // Of a group, and of $ behind it; 0: it has no end.
  size_t length_of_group() const {
    const std::string_view rest = reader_.rest();
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
        const std::string_view behind = rest.substr(i + 1);
        if (behind.starts_with('$')) return i + 2;
        return behind.starts_with("\\Z") || behind.starts_with("\\z") ? i + 3 : i + 1;
      }
    }
    return 0;
  }
  // Whether what means something only at the ends of a text is in the group.
  bool has_anchors(size_t length) const {
    const std::string_view group = reader_.rest().substr(0, length);
    return group.find_first_of("^$") != group.npos || group.find("(?=") != group.npos ||
           group.find("(?!") != group.npos;
  }
  // The beginning of a group that is all of the pattern, and has anchors; else 0.
  size_t group_of_all() const {
    const size_t length = length_of_begin() > 0 ? length_of_group() : 0;
    const bool is_all = length == reader_.rest().size() && reader_.rest().ends_with(')');
    return length > 0 && is_all && has_anchors(length) ? length_of_begin() : 0;
  }
  // The same of one that goes to the end of its alternative.
  size_t group_to_end() const {
    const size_t length = length_of_begin() > 0 ? length_of_group() : 0;
    if (length == 0 || !has_anchors(length)) return 0;
    const std::string_view behind = reader_.rest().substr(length);
    const bool is_last = behind.empty() || behind.starts_with('|') || behind.starts_with(')');
    return is_last ? length_of_begin() : 0;
  }

  bool at_end_of_parts() const {
    if (reader_.at_end()) return true;
    const char next = reader_.peek();
    return next == '|' || next == ')' || next == '$' || next == '^' ||
           reader_.rest().starts_with("\\Z") || reader_.rest().starts_with("\\z") ||
           begins_look_ahead();
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
    int min = 0, max = kNoMax;
    if (reader_.take('*')) {
    } else if (reader_.take('+')) {
      min = 1;
    } else if (reader_.take('?')) {
      max = 1;
    } else if (reader_.begins_bounds()) {
      WIDEEP_TRY_ASSIGN(const TextReader::Bounds bounds, reader_.take_bounds());
      min = bounds.min;
      max = bounds.max;
      if (max != kNoMax && min > max) return error("expected {m,n} with m not above n");
      if (min > kMaxRepeats || max > kMaxRepeats) {
        return error(fmt::format("more than {} repeats", kMaxRepeats));
      }
    } else {
      return part;
    }
    reader_.take('?');  // lazy: the same texts
    const bool is_repeated = !reader_.at_end() && (reader_.peek() == '+' || reader_.peek() == '*');
    if (is_repeated || reader_.begins_bounds()) {
      return error("a repeat of a repeat; possessive ones are not supported");
    }
    return repeat(std::move(part), min, max);
  }

  Result<Expression> atom() {
    if (reader_.take('(')) return group();
    if (reader_.take('[')) return bracket();
    if (reader_.take('.')) return written(inverted(is_excluded_ ? kLineFeed : kLineEnds));
    if (reader_.take('\\')) {
      if (reader_.at_end()) return error("a \\ at the end");
      const char32_t letter = static_cast<uint8_t>(reader_.peek());
      if (letter == 'b' || letter == 'B') return error("\\b and \\B are not supported");
      if ((letter >= '1' && letter <= '9') || letter == 'k') {
        return error("references to groups are not supported");
      }
      WIDEEP_TRY_ASSIGN(const Class escaped, escape());
      return written(escaped);
    }
    if (reader_.peek() == '*' || reader_.peek() == '+' || reader_.peek() == '?' ||
        reader_.begins_bounds()) {
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
        return error("look-behind, flags and comments, (?…), are not supported");
      }
    }
    WIDEEP_TRY_ASSIGN(Expression all, alternatives(false));
    if (begins_look_ahead()) {
      return error("look-ahead is not supported in a group that is repeated or that more follows");
    }
    if (!reader_.at_end() && (reader_.peek() == '^' || reader_.peek() == '$')) {
      return error("^ and $ are known only at the ends of the pattern and of its alternatives");
    }
    if (!reader_.take(')')) return error("expected )");
    return all;
  }

  Result<Expression> bracket() {
    const bool is_inverted = reader_.take('^');
    Class all;
    if (reader_.rest().starts_with("]")) return error("a class that begins with ]: write \\]");
    while (!reader_.take(']')) {
      if (reader_.at_end()) return error("a [ without its ]");
      WIDEEP_TRY_ASSIGN(const Class first, class_member());
      const bool is_range = reader_.rest().starts_with("-") && !reader_.rest().starts_with("-]");
      if (!is_range) {
        all.add(first);
        continue;
      }
      reader_.skip(1);
      if (reader_.at_end()) return error("a [ without its ]");
      WIDEEP_TRY_ASSIGN(const Class last, class_member());
      const auto one_of = [](const Class& each) -> std::optional<char32_t> {
        const CharacterRanges& ranges = each.ranges[0];
        const bool is_one = ranges.size() == 1 && ranges[0].first == ranges[0].last;
        return is_one ? std::optional(ranges[0].first) : std::nullopt;
      };
      if (!one_of(first) || !one_of(last) || *one_of(first) > *one_of(last)) {
        return error("expected a range from a character to a later one");
      }
      all.add(Class::of({{*one_of(first), *one_of(last)}}));
    }
    return written(is_inverted ? all.inverse() : all);
  }

  Result<Class> class_member() {
    for (const std::string_view other : {"[:", "[.", "[="}) {
      if (reader_.rest().starts_with(other)) {
        return error("POSIX classes, as [:alpha:], are not supported: write a-zA-Z, or \\[");
      }
    }
    if (!reader_.take('\\')) {
      WIDEEP_TRY_ASSIGN(const char32_t c, reader_.character());
      return Class::of({{c, c}});
    }
    if (reader_.take('b')) return Class::of({{'\b', '\b'}});
    return escape();
  }

  // Behind the \.
  Result<Class> escape() {
    if (reader_.at_end()) return error("a \\ at the end");
    if (auto known = class_of(static_cast<uint8_t>(reader_.peek()))) {
      reader_.skip(1);
      return *std::move(known);
    }
    if (reader_.peek() == 'p' || reader_.peek() == 'P') return error("\\p{…} is not supported");
    const std::string_view rest = reader_.rest();
    if (rest.size() > 1 && rest[0] == '0' && rest[1] >= '0' && rest[1] <= '9') {
      return error("\\0 with digits is not supported: write \\x and two of them");
    }
    WIDEEP_TRY_ASSIGN(const char32_t c, reader_.escaped_character());
    return Class::of({{c, c}});
  }

  const RegexOptions& options_;
  TextReader reader_;
  int depth_ = 0;
  int num_look_aheads_ = 0;
  bool is_excluded_ = false;  // in a look-ahead that must not match
};

}  // namespace

Result<Expression> parse_regex(std::string_view pattern, const RegexOptions& options) {
  return Parser(pattern, options).parse();
}

}  // namespace wideep::grammar
