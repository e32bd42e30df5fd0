// SPDX-License-Identifier: Apache-2.0
//
// How texts are cut into words before byte-pair encoding, by the name that a GGUF file gives it
// (tokenizer.ggml.pre): the expressions of the published tokenizers of that name. llama.cpp
// computes most of them to the letter; where its library knows no such expression (upper and lower
// case, combining marks) it takes others, and these are the published ones all the same
// (docs/decisions/0043-gguf.md).
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace wideep::tokenizer {

struct GgufSplits {
  // Each cuts the pieces that the ones before it have left, and keeps what it finds as a piece.
  std::vector<std::string_view> patterns;
  bool ignores_merges = false;  // a word that is a token becomes that token
  bool begins = false;          // texts begin with the bos token where the file does not say
};

// nullptr: no such name.
const GgufSplits* find_splits(std::string_view pre);
// All names, for messages.
std::string known_splits();

}  // namespace wideep::tokenizer
