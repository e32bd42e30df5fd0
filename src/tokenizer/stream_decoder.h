// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace wideep::tokenizer {

// The text of a reply while its tokens arrive. One character may take several tokens; push returns
// what is certain so far and keeps back at most the three bytes that may still become a character.
// All that push returned, and then flush, is what Tokenizer::decode makes of all ids at once.
//
//   StreamDecoder decoder(tokenizer);
//   while (auto id = next_token()) send(decoder.push(*id));
//   send(decoder.flush());
//
// Not thread safe; one per reply.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  // The text that this token completes; often "".
  std::string push(int32_t id);

  // The rest, U+FFFD when it is no whole character. Afterwards the decoder is as new.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::string pending_;  // an unfinished character
};

}  // namespace wideep::tokenizer
