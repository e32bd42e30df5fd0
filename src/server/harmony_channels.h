// SPDX-License-Identifier: Apache-2.0
//
// Splits an answer in OpenAI's harmony format, as GPT-OSS writes it, into its reasoning and its
// content. Such an answer is a list of messages, each
//
//   <|start|>ROLE<|channel|>CHANNEL<|message|>TEXT<|end|>
//
// (the last one ends with an end token), of which the prompt contains the first
// "<|start|>assistant". The channel "analysis" is reasoning; "final" and "commentary" are content.
// A message to a tool (" to=functions.NAME" after the role or the channel, in any channel) is
// content as it was written, with its special tokens, so that the client finds the name in it.
// Messages that follow each other in the same field are separated by a line feed. The format is
// described in https://developers.openai.com/cookbook/articles/openai-harmony.
//
// An answer, or its beginning, that is not in this format is content.
//
// Not thread safe; one per answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/tokenizer.h"

namespace wideep::server {

// The ids of the format's special tokens.
struct HarmonyTokens {
  int32_t start = 0;
  int32_t channel = 0;
  int32_t message = 0;
  int32_t end = 0;
  int32_t constrain = 0;
  int32_t call = 0;

  // nullopt: the tokenizer does not have all of them as special tokens, so that its model writes no
  // harmony.
  static std::optional<HarmonyTokens> find(const tokenizer::Tokenizer& tokenizer);
};

// UTF-8, as far as the tokens' texts are.
struct HarmonyText {
  std::string reasoning;
  std::string content;
};

class HarmonyChannels {
 public:
  explicit HarmonyChannels(const HarmonyTokens& tokens) : tokens_(tokens) {}

  // Whether the token is one of the format's: its text is not a part of a message's, and bytes of
  // an incomplete character before it remain incomplete.
  bool marks(int32_t id) const;
  // Adds a special token of the format. REQUIRES: marks(id).
  HarmonyText mark(int32_t id);
  // Adds the text of other tokens.
  HarmonyText text(std::string_view text);
  // The answer has ended: returns what was kept back.
  HarmonyText finish();

 private:
  enum class Place { kBegin, kRole, kChannel, kMessage };

  void begin_message(HarmonyText* out);
  void write(std::string_view text, HarmonyText* out);

  HarmonyTokens tokens_;
  Place place_ = Place::kBegin;  // kBegin: kRole or, as text decides, kMessage
  std::string header_;           // of this message, as written, after "<|start|>assistant"
  std::string channel_;          // its text after <|channel|>
  bool is_reasoning_ = false;    // this message's field
  bool has_reasoning_ = false;   // an earlier message of the field has text
  bool has_content_ = false;
  bool separate_ = false;  // a line feed comes before the message's first text
};

}  // namespace wideep::server
