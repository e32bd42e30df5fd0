// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/stream_decoder.h"

#include <utility>

#include "tokenizer/utf8.h"

namespace wideep::tokenizer {

std::string StreamDecoder::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_.is_special(id)) return "";
  pending_ += tokenizer_.bytes(id);
  const size_t complete = pending_.size() - cut_short_bytes(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string StreamDecoder::flush() {
  return replace_invalid_utf8(std::exchange(pending_, std::string()));
}

}  // namespace wideep::tokenizer
