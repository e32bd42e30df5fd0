// SPDX-License-Identifier: Apache-2.0
//
// Reads a streamed answer of OpenAI's /v1/chat/completions, as servers of this API write it: text
// in `content`, thinking in `reasoning_content` or `reasoning`, the usage in the last event (also
// that of llama-server, `timings.cache_n`), errors as an event. Unknown members do not count.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "client/event_stream.h"
#include "wideep/status.h"

namespace wideep::client {

struct ReplyPiece {
  std::string content;
  std::string reasoning;
};

struct ReplyUsage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;     // of the prompt's
  std::optional<int64_t> reasoning_tokens;  // of the completion's
};

class ReplyReader {
 public:
  // Takes the data of an event. Errors (failed): it says that the answer has failed, or is no JSON.
  Result<ReplyPiece> take(std::string_view data);

  // Whether the server has said that nothing more comes.
  bool is_done() const { return is_done_; }
  // Whether the server has said that the answer is whole.
  bool is_whole() const { return is_done_ || !finish_reason_.empty(); }
  const std::string& finish_reason() const { return finish_reason_; }  // "": none yet
  const std::optional<ReplyUsage>& usage() const { return usage_; }

 private:
  bool is_done_ = false;
  std::string finish_reason_;
  std::optional<ReplyUsage> usage_;
};

// Why a server refuses a request, and what to do.
std::string refusal_message(const Refusal& refusal);

// The name of the first model in a reply of /v1/models. Errors (failed): there is none.
Result<std::string> first_model(std::string_view reply);

}  // namespace wideep::client
