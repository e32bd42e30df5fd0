// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tokenizer/decoder.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tokenizer {

// Decodes a reply token by token. A character may consist of several tokens, so push() returns the
// complete characters and keeps at most three bytes that may still become a character, or what the
// steps of decoder.h keep: of SentencePiece's kind of tokenizers bytes up to the next token that is
// no byte. The results of all push() calls and of flush() together equal Tokenizer::decode() of all
// ids.
//
//   StreamDecoder decoder(tokenizer);
//   while (auto id = next_token()) send(decoder.push(*id));
//   send(decoder.flush());
//
// Not thread safe; one per reply.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer tokenizer, bool skip_special_tokens = true)
      : tokenizer_(std::move(tokenizer)),
        skip_special_tokens_(skip_special_tokens),
        state_(&tokenizer_.decoder()) {}

  // The characters that this token completes; may be "".
  std::string push(int32_t id);

  // The rest, which is U+FFFD for an incomplete character. Resets the decoder for another reply.
  std::string flush();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  DecoderState state_;
};

}  // namespace wideep::tokenizer
