// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/stream_decoder.h"

namespace wideep::tokenizer {

std::string StreamDecoder::push(int32_t id) {
  if (!tokenizer_.decodes(id, skip_special_tokens_)) return "";
  return state_.push(tokenizer_.written(id), tokenizer_.bytes(id));
}

std::string StreamDecoder::flush() { return state_.finish(); }

}  // namespace wideep::tokenizer
