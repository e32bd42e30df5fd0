// SPDX-License-Identifier: Apache-2.0
//
// A function for each kind of step checks the step's keys and adds it. Sequences are flattened
// first, so that readers see one list. An error is reported to the component and reading goes on or
// stops as is simplest: the caller looks at the component's status.
#include "tokenizer/pipeline_reader.h"

#include <fmt/format.h>

#include <utility>

#include "tokenizer/char_kinds.h"
#include "tokenizer/utf8.h"

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

void add_pattern(const Component& step, std::string_view key, Result<Pattern> pattern,
                 PreTokenizer* pre_tokenizer) {
  if (pattern.ok()) {
    pre_tokenizer->add(std::move(*pattern));
  } else {
    step.complain_at(key, pattern.status().message());
  }
}

void add_form(UnicodeForm form, const Component& step, Normalizer* normalizer) {
  // ICU's data is checked while reading, so that encode() cannot fail for lack of it.
  const Status available = check_form_available(form);
  if (!available.ok()) step.complain(available.message());
  step.allow_keys({"type"});
  normalizer->add(FormStep{.form = form});
}

void read_normalizer_step(const Component& step, Normalizer* normalizer) {
  const std::string type = step.type();
  if (type == "NFC") return add_form(UnicodeForm::kNfc, step, normalizer);
  if (type == "NFD") return add_form(UnicodeForm::kNfd, step, normalizer);
  if (type == "NFKC") return add_form(UnicodeForm::kNfkc, step, normalizer);
  if (type == "NFKD") return add_form(UnicodeForm::kNfkd, step, normalizer);
  if (type == "Lowercase") {
    step.allow_keys({"type"});
    normalizer->add(LowercaseStep{});
  } else if (type == "StripAccents") {
    step.allow_keys({"type"});
    normalizer->add(StripAccentsStep{});
  } else if (type == "Strip") {
    step.allow_keys({"type", "strip_left", "strip_right"});
    normalizer->add(StripStep{.left = step.object().boolean("strip_left"),
                              .right = step.object().boolean("strip_right")});
  } else if (type == "Prepend") {
    step.allow_keys({"type", "prepend"});
    normalizer->add(PrependStep{.content = step.object().string("prepend")});
  } else if (type == "Replace") {
    step.allow_keys({"type", "pattern", "content"});
    std::string content = step.object().string("content");
    std::optional<Pattern> pattern = read_pattern(step);
    if (pattern) normalizer->add(ReplaceStep{std::move(*pattern), std::move(content)});
  } else {
    step.expect(false, "type",
                "'NFC', 'NFD', 'NFKC', 'NFKD', 'Lowercase', 'Prepend', 'Replace', 'Strip', "
                "'StripAccents' or a 'Sequence' of these");
  }
}

SplitBehavior read_behavior(const Component& step, const std::string& name) {
  constexpr std::pair<const char*, SplitBehavior> kBehaviors[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  step.expect(false, "behavior",
              "'Removed', 'Isolated', 'MergedWithPrevious', 'MergedWithNext' or 'Contiguous'");
  return SplitBehavior::kIsolated;
}

void read_split(const Component& step, PreTokenizer* pre_tokenizer) {
  step.allow_keys({"type", "pattern", "behavior", "invert"});
  const SplitBehavior behavior = read_behavior(step, step.object().string("behavior"));
  const bool invert = step.object().boolean("invert");
  std::optional<Pattern> pattern = read_pattern(step);
  if (pattern) pre_tokenizer->add(SplitStep{std::move(*pattern), behavior, invert});
}

void read_metaspace(const Component& step, PreTokenizer* pre_tokenizer) {
  const MetaspaceKeys keys = read_metaspace_keys(step);
  pre_tokenizer->add(MetaspaceStep{keys.replacement, keys.prepend, keys.split});
}

void read_byte_level(const Component& step, PreTokenizer* pre_tokenizer) {
  check_byte_level(step);
  if (step.object().boolean("add_prefix_space")) pre_tokenizer->add(PrefixSpaceStep{});
  if (step.object().boolean_or("use_regex", true)) {
    add_pattern(step, "use_regex", PreTokenizer::gpt2_pattern(), pre_tokenizer);
  }
}

void read_pre_tokenizer_step(const Component& step, bool last, PreTokenizer* pre_tokenizer) {
  const std::string type = step.type();
  if (type == "Split") {
    read_split(step, pre_tokenizer);
  } else if (type == "Metaspace") {
    read_metaspace(step, pre_tokenizer);
  } else if (type == "Digits") {
    step.allow_keys({"type", "individual_digits"});
    const bool individual = step.object().boolean("individual_digits");
    pre_tokenizer->add(CharacterSplitStep{
        is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    step.allow_keys({"type", "behavior"});
    pre_tokenizer->add(CharacterSplitStep{
        is_punctuation, read_behavior(step, step.object().string_or("behavior", "Isolated"))});
  } else if (type == "Whitespace") {
    step.allow_keys({"type"});
    pre_tokenizer->add(WordsStep{});
  } else if (type == "WhitespaceSplit") {
    step.allow_keys({"type"});
    pre_tokenizer->add(CharacterSplitStep{is_white_space, SplitBehavior::kRemoved});
  } else {
    step.expect(last && type == "ByteLevel", "type",
                "'Split', 'Metaspace', 'Digits', 'Punctuation', 'Whitespace', 'WhitespaceSplit', a "
                "'Sequence' of these, and 'ByteLevel' at the end");
    if (step.ok()) read_byte_level(step, pre_tokenizer);
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

void check_byte_level(const Component& step) {
  step.allow_keys({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  step.object().boolean("add_prefix_space");
  step.object().boolean("trim_offsets");  // affects offsets only
  step.object().boolean_or("use_regex", true);
}

std::vector<Component> steps_at(const Component& root, std::string_view key,
                                std::string_view list_key) {
  if (!root.has(key)) return {};
  return flatten(root.child(key), list_key);
}

std::optional<Pattern> read_pattern(const Component& step) {
  const Component pattern = step.child("pattern");
  pattern.allow_keys({"Regex", "String"});
  if (!step.ok()) return std::nullopt;
  if (pattern.raw().size() != 1) {
    pattern.complain("expected one of the keys 'Regex' and 'String'");
    return std::nullopt;
  }
  const char* key = pattern.has("String") ? "String" : "Regex";
  const std::string text = pattern.object().string(key);
  Result<Pattern> result =
      pattern.has("String") ? Pattern::from_literal(text) : Pattern::from_regex(text);
  if (result.ok()) return std::move(*result);
  pattern.complain_at(key, result.status().message());
  return std::nullopt;
}

MetaspaceKeys read_metaspace_keys(const Component& step) {
  step.allow_keys(
      {"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  MetaspaceKeys keys{.replacement = step.object().string("replacement"),
                     .split = step.object().boolean_or("split", true)};
  const std::string scheme = step.object().string_or("prepend_scheme", "always");
  step.expect(scheme == "always" || scheme == "first" || scheme == "never", "prepend_scheme",
              "'always', 'first' or 'never'");
  keys.prepend = scheme == "never"   ? PrependScheme::kNever
                 : scheme == "first" ? PrependScheme::kFirst
                                     : PrependScheme::kAlways;
  // An older name, which says nothing where it is true.
  const bool adds = step.object().boolean_or("add_prefix_space", true);
  step.expect(adds || scheme == "never", "add_prefix_space", "true, or prepend_scheme 'never'");
  const bool is_character =
      !keys.replacement.empty() && first_unit(keys.replacement).bytes == keys.replacement.size();
  step.expect(is_character, "replacement", "one character");
  return keys;
}

bool ends_with_byte_level(const Component& root) {
  const nlohmann::json* step = &root.raw();
  const auto descend = [&](const char* key) {
    const auto found = step->find(key);
    step = found == step->end() ? nullptr : &*found;
  };
  descend("pre_tokenizer");
  while (step != nullptr && step->is_object() &&
         step->value("type", nlohmann::json()) == "Sequence") {
    descend("pretokenizers");
    if (step == nullptr || !step->is_array() || step->empty()) return false;
    step = &step->back();
  }
  return step != nullptr && step->is_object() &&
         step->value("type", nlohmann::json()) == "ByteLevel";
}

Normalizer read_normalizer(const Component& root) {
  Normalizer normalizer;
  for (const Component& step : steps_at(root, "normalizer", "normalizers")) {
    if (root.ok()) read_normalizer_step(step, &normalizer);
  }
  return normalizer;
}

PreTokenizer read_pre_tokenizer(const Component& root) {
  PreTokenizer pre_tokenizer;
  const std::vector<Component> steps = steps_at(root, "pre_tokenizer", "pretokenizers");
  for (size_t i = 0; i < steps.size() && root.ok(); ++i) {
    read_pre_tokenizer_step(steps[i], i + 1 == steps.size(), &pre_tokenizer);
  }
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

}  // namespace wideep::tokenizer
