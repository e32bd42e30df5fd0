// SPDX-License-Identifier: Apache-2.0
//
// Added tokens, such as "<|im_start|>": they are found literally in the text, before the
// pre-tokenizer and BPE see it.
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
  bool single_word = false;  // matches only without word characters next to it
  bool lstrip = false;       // the match includes white space before it
  bool rstrip = false;       // the match includes white space after it
  bool normalized = false;   // searched in the normalised text
  bool special = false;      // Tokenizer::decode leaves it out by default
};

// A part of a text: an added token (its id), or text between added tokens (id kText).
struct Segment {
  static constexpr int32_t kText = -1;
  int32_t id;
  std::string_view text;
};

// Finds added tokens: the leftmost match, and of those with the same start the longest.
// Thread safety: constant after construction.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  // Of two tokens with equal content the first is used. REQUIRES: no content is empty.
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);

  // Appends the segments of `text`, in order; text segments are not empty.
  // REQUIRES: `text` is valid UTF-8.
  void split(std::string_view text, std::vector<Segment>* segments) const;

 private:
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    int32_t token = -1;  // index in tokens_ of the token that ends here; -1: none
  };

  void insert(int32_t token);
  const AddedToken* longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;            // a trie over bytes; nodes_[0] is the root
  std::array<bool, 256> starts_ = {};  // [byte]: whether a token starts with it
};

}  // namespace wideep::tokenizer
