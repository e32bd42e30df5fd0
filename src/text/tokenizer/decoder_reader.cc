// SPDX-License-Identifier: Apache-2.0
//
// read_decoder() of pipeline_reader.h.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "tokenizer/pipeline_reader.h"
#include "tokenizer/utf8.h"

namespace wideep::tokenizer {
namespace {

bool is_one_character(std::string_view text) {
  return !text.empty() && first_unit(text).bytes == text.size();
}

class DecoderReader {
 public:
  void read(const Component& step) {
    const std::string type = step.type();
    if (type == "Replace") {
      read_replace(step);
    } else if (type == "ByteFallback") {
      step.allow_keys({"type"});
      step.expect(!fused_, "type", "'ByteFallback' before 'Fuse', because it needs whole tokens");
      steps_.emplace_back(ByteFallbackDecoding{});
    } else if (type == "Fuse") {
      step.allow_keys({"type"});
      fused_ = true;
      steps_.emplace_back(FuseDecoding{});
    } else if (type == "Strip") {
      read_strip(step);
    } else if (type == "Metaspace") {
      const MetaspaceKeys keys = read_metaspace_keys(step);
      steps_.emplace_back(
          MetaspaceDecoding{keys.replacement, keys.prepend != PrependScheme::kNever});
    } else {
      step.expect(false, "type",
                  "'ByteLevel' alone, or 'Replace', 'ByteFallback', 'Fuse', 'Strip', 'Metaspace' "
                  "or a 'Sequence' of these");
    }
  }

  Decoder decoder() && { return Decoder(std::move(steps_)); }

 private:
  void read_replace(const Component& step) {
    step.allow_keys({"type", "pattern", "content"});
    std::string content = step.object().string("content");
    std::optional<Pattern> pattern = read_pattern(step);
    if (!pattern) return;
    // Only one character cannot lie in two parts of the token.
    const Component keys = step.child("pattern");
    const bool is_character = is_one_character(keys.object().string_or("String", ""));
    step.expect(!fused_ || is_character, "type",
                "'Replace' before 'Fuse', or of a 'String' of one character");
    steps_.emplace_back(ReplaceDecoding{std::move(*pattern), std::move(content)});
  }

  void read_strip(const Component& step) {
    step.allow_keys({"type", "content", "start", "stop"});
    constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
    StripDecoding strip{.character = step.object().string("content"),
                        .start = step.object().integer("start", {.min = 0, .max = kMax}),
                        .stop = step.object().integer("stop", {.min = 0, .max = kMax})};
    step.expect(is_one_character(strip.character), "content", "one character");
    steps_.emplace_back(std::move(strip));
  }

  std::vector<DecodingStep> steps_;
  bool fused_ = false;
};

}  // namespace

Decoder read_decoder(const Component& root) {
  const std::vector<Component> steps = steps_at(root, "decoder", "decoders");
  root.expect(root.has("decoder"), "decoder", "one that joins tokens, such as 'ByteLevel'");
  if (!root.ok()) return {};
  if (steps.size() == 1 && steps[0].type() == "ByteLevel") {
    check_byte_level(steps[0]);
    return {};
  }
  DecoderReader reader;
  for (const Component& step : steps) {
    if (root.ok()) reader.read(step);
  }
  return std::move(reader).decoder();
}

}  // namespace wideep::tokenizer
