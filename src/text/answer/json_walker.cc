// SPDX-License-Identifier: Apache-2.0
//
// A state machine without look-ahead and without a tree: memory is a byte for each open bracket.
// Only numbers end with the byte behind them, which is then pushed again; so a bare number has no
// end here, and is_json() wraps it in a list.
#include "answer/json_walker.h"

#include "formats/json_parse.h"

namespace wideep::answer {
namespace {

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

}  // namespace

JsonWalker::Step JsonWalker::push(char byte) {
  switch (place_) {
    case Place::kString:
    case Place::kEscape:
    case Place::kUnicode:
      return push_in_string(byte);
    case Place::kWord:
      if (byte != word_.front()) return wrong();
      word_.remove_prefix(1);
      return word_.empty() ? end_value() : Step::kInside;
    case Place::kValue:
    case Place::kFirstItem:
      if (is_space(byte)) return Step::kInside;
      if (byte == ']' && place_ == Place::kFirstItem) {
        open_.pop_back();
        return end_value();
      }
      return begin_value(byte);
    case Place::kFirstKey:
    case Place::kKey:
      if (is_space(byte)) return Step::kInside;
      if (byte == '}' && place_ == Place::kFirstKey) {
        open_.pop_back();
        return end_value();
      }
      if (byte != '"') return wrong();
      is_key_ = true;
      return to(Place::kString);
    case Place::kColon:
      if (is_space(byte)) return Step::kInside;
      return byte == ':' ? to(Place::kValue) : wrong();
    case Place::kAfterValue: {
      if (is_space(byte)) return Step::kInside;
      const bool in_object = open_.back() == '{';
      if (byte == ',') return to(in_object ? Place::kKey : Place::kValue);
      if (byte != (in_object ? '}' : ']')) return wrong();
      open_.pop_back();
      return end_value();
    }
    case Place::kWrong:
      return Step::kWrong;
    default:
      return push_in_number(byte);
  }
}

JsonWalker::Step JsonWalker::begin_value(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (open_.size() >= formats::kMaxJsonDepth) return wrong();
      open_ += byte;
      return to(byte == '{' ? Place::kFirstKey : Place::kFirstItem);
    case '"':
      is_key_ = false;
      return to(Place::kString);
    case 't':
      word_ = "rue";
      return to(Place::kWord);
    case 'f':
      word_ = "alse";
      return to(Place::kWord);
    case 'n':
      word_ = "ull";
      return to(Place::kWord);
    case '-':
      return to(Place::kMinus);
    case '0':
      return to(Place::kZero);
    default:
      return is_digit(byte) ? to(Place::kDigits) : wrong();
  }
}

JsonWalker::Step JsonWalker::end_value() {
  place_ = Place::kAfterValue;
  if (!open_.empty()) return Step::kInside;
  place_ = Place::kWrong;  // nothing may follow
  return Step::kEnd;
}

JsonWalker::Step JsonWalker::push_in_string(char byte) {
  if (place_ == Place::kEscape) {
    if (byte == 'u') {
      digits_ = 4;
      return to(Place::kUnicode);
    }
    constexpr std::string_view kEscapes = "\"\\/bfnrt";
    return kEscapes.find(byte) != kEscapes.npos ? to(Place::kString) : wrong();
  }
  if (place_ == Place::kUnicode) {
    if (!is_hex(byte)) return wrong();
    return --digits_ == 0 ? to(Place::kString) : Step::kInside;
  }
  if (byte == '\\') return to(Place::kEscape);
  if (byte != '"') return Step::kInside;
  return is_key_ ? to(Place::kColon) : end_value();
}

// A number ends with the byte after it, which is looked at again.
JsonWalker::Step JsonWalker::push_in_number(char byte) {
  const bool digit = is_digit(byte);
  switch (place_) {
    case Place::kMinus:
      if (!digit) return wrong();
      return to(byte == '0' ? Place::kZero : Place::kDigits);
    case Place::kPoint:
      return digit ? to(Place::kFraction) : wrong();
    case Place::kExponent:
      if (byte == '+' || byte == '-') return to(Place::kSign);
      [[fallthrough]];
    case Place::kSign:
      return digit ? to(Place::kPower) : wrong();
    default:
      break;
  }
  if (digit && place_ != Place::kZero) return Step::kInside;
  if (byte == '.' && (place_ == Place::kZero || place_ == Place::kDigits)) {
    return to(Place::kPoint);
  }
  if ((byte == 'e' || byte == 'E') && place_ != Place::kPower) return to(Place::kExponent);
  if (open_.empty()) return wrong();
  place_ = Place::kAfterValue;
  return push(byte);
}

bool is_json(std::string_view text) {
  if (text.empty() || is_space(text.front())) return false;
  // In a list a number, too, has an end.
  JsonWalker walker;
  walker.push('[');
  for (const char byte : text) {
    const bool in_string = walker.in_string();
    if (in_string && static_cast<unsigned char>(byte) < 0x20) return false;
    if (!in_string && byte == ',' && walker.depth() == 1) return false;
    if (walker.push(byte) != JsonWalker::Step::kInside) return false;
  }
  return walker.push(']') == JsonWalker::Step::kEnd;
}

}  // namespace wideep::answer
