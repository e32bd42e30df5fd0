// SPDX-License-Identifier: Apache-2.0
//
// Each step hands parts of tokens on to the next one. Before a Fuse a part is a whole token; after
// it all parts are of one token, which Strip does not know the end of before finish().
//
// A step that must see more before it can answer keeps it in its state (bytes of a row, characters
// that may be the last ones) and releases it when the next part decides. So a stream has all text
// that is certain, and together the same as the library.
#include "tokenizer/decoder.h"

#include <optional>
#include <utility>

#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<char>(value);
}

std::string replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string out;
  while (true) {
    const size_t at = text.find(what);
    out += text.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += by;
    text.remove_prefix(at + what.size());
  }
}

}  // namespace

std::string Decoder::bytes_of(std::string_view token) const {
  std::string text(token);
  MatchScratch match;
  for (const DecodingStep& step : steps_) {
    if (const auto* replace = std::get_if<ReplaceDecoding>(&step)) {
      text = replace->pattern.replace_all(text, replace->content, &match);
    } else if (const auto* metaspace = std::get_if<MetaspaceDecoding>(&step)) {
      text = replaced(text, metaspace->replacement, " ");
    } else if (std::holds_alternative<ByteFallbackDecoding>(step)) {
      // What follows are steps on text.
      if (const std::optional<char> byte = byte_of_token(text)) return {*byte};
    }
  }
  return text;
}

DecoderState::DecoderState(const Decoder* decoder)
    : decoder_(decoder), states_(decoder->steps().size()) {}

// The bytes of a row, which ends here.
void DecoderState::end_bytes(size_t index, std::string* out) {
  const std::string bytes = std::exchange(states_[index].bytes, std::string());
  if (bytes.empty()) return;
  if (is_valid_utf8(bytes)) return run(index + 1, {bytes, true}, out);
  for (size_t i = 0; i < bytes.size(); ++i) run(index + 1, {"\uFFFD", true}, out);
}

void DecoderState::strip(size_t index, const StripDecoding& step, const Part& part,
                         std::string* out) {
  StepState& state = states_[index];
  std::string text;
  const auto release = [&](int64_t keep) {
    for (; state.held > keep; --state.held) text += step.character;
  };
  if (part.begins) {
    state.to_strip = step.start;
    state.held = 0;
  }
  for (std::string_view rest = part.text; !rest.empty();) {
    const std::string_view character = rest.substr(0, first_unit(rest).bytes);
    rest.remove_prefix(character.size());
    if (character != step.character) {
      state.to_strip = 0;
      release(0);
      text += character;
    } else if (state.to_strip > 0) {
      --state.to_strip;
    } else {
      ++state.held;
      release(step.stop);
    }
  }
  run(index + 1, {std::move(text), part.begins}, out);
}

void DecoderState::run(size_t index, Part part, std::string* out) {
  if (index == decoder_->steps().size()) {
    *out += part.text;
    return;
  }
  struct Visitor {
    DecoderState& self;
    size_t index;
    Part& part;
    std::string* out;

    void operator()(const ReplaceDecoding& step) const {
      static thread_local MatchScratch match;
      match.reset();
      part.text = step.pattern.replace_all(part.text, step.content, &match);
      self.run(index + 1, std::move(part), out);
    }
    void operator()(const ByteFallbackDecoding&) const {
      if (const std::optional<char> byte = byte_of_token(part.text)) {
        self.states_[index].bytes += *byte;
        return;
      }
      self.end_bytes(index, out);
      self.run(index + 1, std::move(part), out);
    }
    void operator()(const FuseDecoding&) const {
      part.begins = self.states_[index].tokens++ == 0;
      self.run(index + 1, std::move(part), out);
    }
    void operator()(const StripDecoding& step) const { self.strip(index, step, part, out); }
    void operator()(const MetaspaceDecoding& step) const {
      StepState& state = self.states_[index];
      if (part.begins) ++state.tokens;
      const bool drops = step.drops_first && state.tokens == 1;
      part.text = replaced(part.text, step.replacement, drops ? "" : " ");
      self.run(index + 1, std::move(part), out);
    }
  };
  std::visit(Visitor{*this, index, part, out}, decoder_->steps()[index]);
}

std::string DecoderState::push(std::string_view token, std::string_view bytes) {
  if (!decoder_->is_bytes()) {
    std::string text;
    run(0, {std::string(token), true}, &text);
    return text;
  }
  pending_ += bytes;
  const size_t complete = pending_.size() - cut_short_bytes(pending_);
  std::string text = replace_invalid_utf8(std::string_view(pending_).substr(0, complete));
  pending_.erase(0, complete);
  return text;
}

std::string DecoderState::finish() {
  std::string text = replace_invalid_utf8(std::exchange(pending_, std::string()));
  for (size_t i = 0; i < states_.size(); ++i) end_bytes(i, &text);
  states_.assign(states_.size(), {});
  return text;
}

}  // namespace wideep::tokenizer
