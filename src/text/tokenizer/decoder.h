// SPDX-License-Identifier: Apache-2.0
//
// From tokens to text: the steps of a tokenizer.json's "decoder", one token at a time. The texts of
// all push() calls and of finish() together are what the tokenizers library makes of all tokens at
// once:
//
//   ByteLevel     the bytes of all tokens as UTF-8, with U+FFFD for ill-formed parts
//   Replace       in each token
//   ByteFallback  tokens such as "<0xE4>" in a row are bytes; if these are no valid UTF-8, each
//                 byte becomes U+FFFD. So they wait for the next token that is no byte
//   Fuse          all tokens are one from here on
//   Strip         takes a character away from both ends of each token, a number of times
//   Metaspace     replaces a character by a space, and leaves it out in the first token
//
// Thread safety: a Decoder is immutable; a DecoderState belongs to one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/pattern.h"

namespace wideep::tokenizer {

struct ReplaceDecoding {
  Pattern pattern;
  std::string content;
};
struct ByteFallbackDecoding {};
struct FuseDecoding {};
struct StripDecoding {
  std::string character;
  int64_t start;  // at most so many at each end
  int64_t stop;
};
struct MetaspaceDecoding {
  std::string replacement;
  bool drops_first;  // leaves it out in the first token, else it is a space there too
};
using DecodingStep = std::variant<ReplaceDecoding, ByteFallbackDecoding, FuseDecoding,
                                  StripDecoding, MetaspaceDecoding>;

class Decoder {
 public:
  // Takes the bytes of tokens (Vocabulary::bytes) as they are, without steps.
  Decoder() = default;
  explicit Decoder(std::vector<DecodingStep> steps) : is_bytes_(false), steps_(std::move(steps)) {}

  bool is_bytes() const { return is_bytes_; }
  const std::vector<DecodingStep>& steps() const { return steps_; }

  // What one token stands for, wherever it is: bytes, which need not be valid UTF-8.
  std::string bytes_of(std::string_view token) const;

 private:
  bool is_bytes_ = true;
  std::vector<DecodingStep> steps_;
};

class DecoderState {
 public:
  // REQUIRES: the decoder outlives the state.
  explicit DecoderState(const Decoder* decoder);

  // The text that a token completes: `token` as written, `bytes` what it stands for.
  std::string push(std::string_view token, std::string_view bytes);

  // The rest. Then the state is that of the start.
  std::string finish();

 private:
  // A token, or a part of one. All parts of a token follow each other.
  struct Part {
    std::string text;
    bool begins;  // a token
  };
  struct StepState {
    int64_t tokens = 0;    // that have begun
    std::string bytes;     // ByteFallback: of the row so far
    int64_t to_strip = 0;  // Strip: how many characters may still be taken away from the start
    int64_t held = 0;      // Strip: characters that may be the last ones
  };

  void run(size_t first_step, Part part, std::string* out);
  void finish_step(size_t index, std::string* out);
  void strip(size_t index, const StripDecoding& step, const Part& part, std::string* out);
  void end_bytes(size_t index, std::string* out);

  const Decoder* decoder_;
  std::vector<StepState> states_;  // one for each step
  std::string pending_;            // of a decoder of bytes: an unfinished character
};

}  // namespace wideep::tokenizer
