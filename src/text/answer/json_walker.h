// SPDX-License-Identifier: Apache-2.0
//
// Goes through the text of a JSON object, list or string byte by byte, and says where it ends: text
// inside a string is not mistaken for its end, and an end that is missing is not made up.
//
// Strict (RFC 8259), but for control characters inside of strings, which models write: they pass,
// for whoever copies the text to escape. At most formats::kMaxJsonDepth levels.
//
// Not thread safe; a plain value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace wideep::answer {

class JsonWalker {
 public:
  enum class Step : uint8_t { kInside, kEnd, kWrong };

  // The next byte: kEnd with the last one of the value; kWrong: no JSON, from then on.
  Step push(char byte);

  // Between the quotes of a string; the quote that ends it no longer is.
  bool in_string() const { return place_ == Place::kString; }
  size_t depth() const { return open_.size(); }

 private:
  enum class Place : uint8_t {
    kValue,       // a value must follow
    kFirstItem,   // a value, or the end of an empty list
    kFirstKey,    // a key, or the end of an empty object
    kKey,         // a key must follow
    kColon,       // after a key
    kAfterValue,  // a comma or the end of the object or list
    kString,
    kEscape,   // after a backslash
    kUnicode,  // in the four digits after \u
    kWord,     // in true, false, null
    kMinus,    // a digit must follow
    kZero,
    kDigits,
    kPoint,  // a digit must follow
    kFraction,
    kExponent,  // a sign or a digit must follow
    kSign,      // a digit must follow
    kPower,
    kWrong,
  };

  Step begin_value(char byte);
  Step end_value();
  Step push_in_string(char byte);
  Step push_in_number(char byte);
  Step to(Place place) {
    place_ = place;
    return Step::kInside;
  }
  Step wrong() {
    place_ = Place::kWrong;
    return Step::kWrong;
  }

  Place place_ = Place::kValue;
  std::string open_;       // '{' and '[' around the place
  bool is_key_ = false;    // the string is one
  std::string_view word_;  // its bytes to come
  int digits_ = 0;         // of \u to come
};

// Whether all of the text is one JSON value, of any kind, without white space around it.
bool is_json(std::string_view text);

}  // namespace wideep::answer
