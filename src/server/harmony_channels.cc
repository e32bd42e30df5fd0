// SPDX-License-Identifier: Apache-2.0
#include "server/harmony_channels.h"

#include <algorithm>
#include <utility>

namespace wideep::server {
namespace {

constexpr std::string_view kTo = " to=";

}  // namespace

std::optional<HarmonyTokens> HarmonyTokens::find(const tokenizer::Tokenizer& tokenizer) {
  HarmonyTokens tokens;
  const std::pair<const char*, int32_t*> names[] = {
      {"<|start|>", &tokens.start},         {"<|channel|>", &tokens.channel},
      {"<|message|>", &tokens.message},     {"<|end|>", &tokens.end},
      {"<|constrain|>", &tokens.constrain}, {"<|call|>", &tokens.call},
  };
  for (const auto& [name, id] : names) {
    const std::optional<int32_t> found = tokenizer.token_to_id(name);
    if (!found || !tokenizer.is_special(*found)) return std::nullopt;
    *id = *found;
  }
  return tokens;
}

bool HarmonyChannels::marks(int32_t id) const {
  return id == tokens_.start || id == tokens_.channel || id == tokens_.message ||
         id == tokens_.end || id == tokens_.constrain || id == tokens_.call;
}

HarmonyText HarmonyChannels::mark(int32_t id) {
  HarmonyText out;
  if (id == tokens_.start) {
    place_ = Place::kRole;
    header_.clear();
    channel_.clear();
  } else if (id == tokens_.channel) {
    place_ = Place::kChannel;
    header_ += "<|channel|>";
  } else if (id == tokens_.constrain && place_ != Place::kMessage) {
    header_ += "<|constrain|>";
  } else if (id == tokens_.message) {
    begin_message(&out);
  } else if (id == tokens_.end || id == tokens_.call) {
    // What may follow without a <|start|> is content.
    out = finish();
    place_ = Place::kMessage;
    is_reasoning_ = false;
    separate_ = has_content_;
  }
  return out;
}

HarmonyText HarmonyChannels::text(std::string_view text) {
  HarmonyText out;
  if (text.empty()) return out;
  if (place_ == Place::kMessage) {
    write(text, &out);
    return out;
  }
  header_ += text;
  if (place_ == Place::kChannel) channel_ += text;
  const size_t known = std::min(header_.size(), kTo.size());
  if (place_ == Place::kBegin && header_.substr(0, known) != kTo.substr(0, known)) out = finish();
  return out;
}

// What begins the answer and has no message is the text of a model that does not keep to the
// format. A later header without a message has no text.
HarmonyText HarmonyChannels::finish() {
  HarmonyText out;
  if (place_ == Place::kBegin) {
    place_ = Place::kMessage;
    write(header_, &out);
  }
  return out;
}

void HarmonyChannels::begin_message(HarmonyText* out) {
  const bool to_tool = header_.find(kTo) != header_.npos;
  is_reasoning_ = !to_tool && channel_.starts_with("analysis");
  separate_ = is_reasoning_ ? has_reasoning_ : has_content_;
  place_ = Place::kMessage;
  if (!to_tool) return;
  // A role that was not in the prompt is in the header.
  const bool has_role = header_.starts_with("assistant");
  write(std::string("<|start|>") + (has_role ? "" : "assistant") + header_ + "<|message|>", out);
}

void HarmonyChannels::write(std::string_view text, HarmonyText* out) {
  if (text.empty()) return;
  std::string& field = is_reasoning_ ? out->reasoning : out->content;
  if (separate_) field += '\n';
  separate_ = false;
  field += text;
  (is_reasoning_ ? has_reasoning_ : has_content_) = true;
}

}  // namespace wideep::server
