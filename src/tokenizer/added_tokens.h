// SPDX-License-Identifier: Apache-2.0
//
// Added tokens: tokens that are found in the text as they stand, before anything else is done to it
// ("<|im_start|>").
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::tokenizer {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character is beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // looked for in the normalised text
  bool special = false;      // decode leaves it out
};

// A part of a text: an added token, or text between added tokens (id kText).
struct Segment {
  static constexpr int32_t kText = -1;
  int32_t id;
  std::string_view text;
};

// Finds added tokens: leftmost first, of those that start at the same place the longest.
// Thread safety: constant after construction.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Of two tokens with equal content the first counts. REQUIRES: contents are not empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Appends the segments of `text`, in order; text segments are not empty.
  // REQUIRES: `text` is valid UTF-8.
  void split(std::string_view text, std::vector<Segment>* segments) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    int32_t token = -1;  // index in tokens_ of the one that ends here
  };

  void insert(int32_t token);
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;            // a trie over bytes; nodes_[0] is the root
  std::array<bool, 256> starts_ = {};  // bytes with which a token starts
};

}  // namespace wideep::tokenizer
