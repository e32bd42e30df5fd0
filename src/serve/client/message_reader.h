// SPDX-License-Identifier: Apache-2.0
//
// Messages that a user types, of one line or several:
//
//   one line                    a line that ends in a backslash \
//   """several lines            goes on
//   in a block"""
//
// Thread safety: one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace wideep::client {

class MessageReader {
 public:
  // Takes a line without its end. Returns the message that ends with it, if one does.
  std::optional<std::string> take(std::string_view line);
  // Takes a line of a text that is pasted, behind which more comes: it means nothing but itself.
  void take_part(std::string_view line);
  bool is_inside() const { return is_block_ || continues_; }  // a message that has begun
  void clear();

 private:
  std::optional<std::string> end();

  std::string text_;
  bool is_block_ = false;   // between """ and """
  bool continues_ = false;  // after a backslash
};

}  // namespace wideep::client
