// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pipeline_reader.h"

#include <fmt/format.h>

#include <utility>

#include "base/printable.h"
#include "tokenizer/normalizer.h"

namespace wideep::tokenizer {
namespace {

// The steps of a component: the component itself, or the elements of a Sequence, which may contain
// Sequences. list_key: the key of a Sequence's elements.
std::vector<Component> flatten(const Component& component, std::string_view list_key) {
  if (component.type() != "Sequence") return {component};
  component.allow_keys({"type", list_key});
  std::vector<Component> flat;
  for (const Component& element : component.children(list_key)) {
    for (Component& part : flatten(element, list_key)) flat.push_back(std::move(part));
  }
  return flat;
}

std::vector<Component> steps_at(const Component& root, std::string_view key,
                                std::string_view list_key) {
  if (!root.has(key)) return {};
  return flatten(root.child(key), list_key);
}

void check_byte_level(const Component& step) {
  step.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  step.object().boolean("add_prefix_space");
  step.object().boolean("trim_offsets");  // affects offsets only
  step.object().boolean_or("use_regex", true);
}

void add_pattern(const Component& step, std::string_view key, Result<Pattern> pattern,
                 PreTokenizer* pre_tokenizer) {
  if (pattern.ok()) {
    pre_tokenizer->add(std::move(*pattern));
  } else {
    step.complain_at(key, pattern.status().message());
  }
}

void read_split(const Component& step, PreTokenizer* pre_tokenizer) {
  step.allow_keys({"type", "pattern", "behavior", "invert"});
  step.expect(step.object().string("behavior") == "Isolated", "behavior", "'Isolated'");
  step.expect(!step.object().boolean("invert"), "invert", "false");
  const Component pattern = step.child("pattern");
  pattern.allow_keys({"Regex", "String"});
  if (!step.ok()) return;
  if (pattern.raw().size() != 1) {
    pattern.complain("expected one of the keys 'Regex' and 'String'");
  } else if (pattern.has("String")) {
    add_pattern(pattern, "String", Pattern::from_literal(pattern.object().string("String")),
                pre_tokenizer);
  } else {
    add_pattern(pattern, "Regex", Pattern::from_regex(pattern.object().string("Regex")),
                pre_tokenizer);
  }
}

void read_byte_level(const Component& step, PreTokenizer* pre_tokenizer) {
  check_byte_level(step);
  if (step.object().boolean("add_prefix_space")) pre_tokenizer->add_prefix_space();
  if (step.object().boolean_or("use_regex", true)) {
    add_pattern(step, "use_regex", PreTokenizer::gpt2_pattern(), pre_tokenizer);
  }
}

// Reads the template "single": special tokens before and after the text, which is the sequence 'A'.
class TemplateReader {
 public:
  TemplateReader(const Component& step, const Vocabulary& vocabulary)
      : step_(step), vocabulary_(vocabulary), special_tokens_(step.child("special_tokens")) {}

  PostProcessor read() {
    step_.allow_keys({"type", "single", "pair", "special_tokens"});
    int num_sequences = 0;
    for (const Component& piece : step_.children("single")) {
      piece.allow_keys({"SpecialToken", "Sequence"});
      if (piece.has("Sequence")) {
        const std::string id = piece.child("Sequence").object().string("id");
        piece.expect(id == "A", "Sequence", "the sequence 'A'");
        ++num_sequences;
      } else {
        append_ids(piece.child("SpecialToken"), num_sequences == 0 ? &out_.before : &out_.after);
      }
    }
    if (num_sequences != 1 && step_.ok()) {
      step_.complain_at(
          "single", fmt::format("expected the sequence once, found it {} times", num_sequences));
    }
    return std::move(out_);
  }

 private:
  void append_ids(const Component& piece, std::vector<int32_t>* ids) {
    if (!step_.ok()) return;
    const std::string name = piece.object().string("id");
    const Component token = special_tokens_.child(name);
    for (const int64_t id : token.object().integers("ids")) {
      if (!vocabulary_.has(id)) {
        token.complain_at("ids", fmt::format("the tokenizer has no token with id {}", id));
        return;
      }
      ids->push_back(static_cast<int32_t>(id));
    }
  }

  const Component& step_;
  const Vocabulary& vocabulary_;
  Component special_tokens_;
  PostProcessor out_;
};

}  // namespace

bool read_normalizer(const Component& root) {
  bool nfc = false;
  for (const Component& step : steps_at(root, "normalizer", "normalizers")) {
    step.expect(step.type() == "NFC", "type", "'NFC' or a 'Sequence' of it");
    step.allow_keys({"type"});
    nfc = true;
  }
  // ICU's data is checked while reading, so that encode() cannot fail for lack of it.
  if (!nfc) return false;
  const Status available = check_nfc_available();
  if (!available.ok()) root.complain_at("normalizer", available.message());
  return true;
}

PreTokenizer read_pre_tokenizer(const Component& root) {
  PreTokenizer pre_tokenizer;
  const std::vector<Component> steps = steps_at(root, "pre_tokenizer", "pretokenizers");
  for (size_t i = 0; i < steps.size() && root.ok(); ++i) {
    const Component& step = steps[i];
    const bool last = i + 1 == steps.size();
    if (last || step.type() == "ByteLevel") {
      step.expect(last && step.type() == "ByteLevel", "type",
                  "'Split' steps and one 'ByteLevel' at the end");
      if (step.ok()) read_byte_level(step, &pre_tokenizer);
    } else {
      step.expect(step.type() == "Split", "type", "'Split', 'ByteLevel' or a 'Sequence' of these");
      if (step.ok()) read_split(step, &pre_tokenizer);
    }
  }
  if (steps.empty()) root.expect(false, "pre_tokenizer", "one that ends with 'ByteLevel'");
  return pre_tokenizer;
}

PostProcessor read_post_processor(const Component& root, const Vocabulary& vocabulary) {
  PostProcessor post_processor;
  bool has_template = false;
  for (const Component& step : steps_at(root, "post_processor", "processors")) {
    if (step.type() == "ByteLevel") {
      check_byte_level(step);
      continue;
    }
    step.expect(step.type() == "TemplateProcessing", "type",
                "'ByteLevel', 'TemplateProcessing' or a 'Sequence' of these");
    step.expect(!has_template, "type", "one 'TemplateProcessing' at most");
    if (step.ok()) post_processor = TemplateReader(step, vocabulary).read();
    has_template = true;
  }
  return post_processor;
}

void check_decoder(const Component& root) {
  const std::vector<Component> steps = steps_at(root, "decoder", "decoders");
  root.expect(root.has("decoder"), "decoder", "'ByteLevel'");
  if (!root.ok()) return;
  if (steps.size() != 1) {
    root.complain_at("decoder", fmt::format("a 'Sequence' of {} is not supported; expected one "
                                            "'ByteLevel'",
                                            steps.size()));
  }
  for (const Component& step : steps) {
    step.expect(step.type() == "ByteLevel", "type", "'ByteLevel'");
    if (step.ok()) check_byte_level(step);
  }
}

}  // namespace wideep::tokenizer
