// SPDX-License-Identifier: Apache-2.0
//
// Reads the steps around the model of a tokenizer.json. Each reader reports types and options that
// wideep does not support, with their key, to the component, and then returns an incomplete result:
// callers must check the component's status.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/component.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pattern.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// The steps of a component: the component itself, or the elements of a Sequence, which may contain
// Sequences. None where the root has no such key. list_key: the key of a Sequence's elements.
std::vector<Component> steps_at(const Component& root, std::string_view key,
                                std::string_view list_key);

// The pattern of a Split or Replace step: its key "pattern" with "Regex" or "String". nullopt: an
// error was reported.
std::optional<Pattern> read_pattern(const Component& step);

// What a Metaspace pre-tokenizer or decoder says.
struct MetaspaceKeys {
  std::string replacement;
  PrependScheme prepend = PrependScheme::kAlways;
  bool split = true;
};
MetaspaceKeys read_metaspace_keys(const Component& step);

// Checks the keys of a ByteLevel step, of any kind.
void check_byte_level(const Component& step);

// Whether the root's "pre_tokenizer" ends with ByteLevel, so that the model works on bytes. Reports
// no error.
bool ends_with_byte_level(const Component& root);

// The root's "normalizer". Supported: null (or absent), NFC, NFD, NFKC, NFKD, Prepend, Replace,
// Lowercase, Strip, StripAccents, a Sequence of these.
Normalizer read_normalizer(const Component& root);

// The root's "pre_tokenizer". Supported: null (or absent), Split, Metaspace, Digits, Punctuation,
// Whitespace, WhitespaceSplit, a Sequence of these, and ByteLevel at the end.
PreTokenizer read_pre_tokenizer(const Component& root);

// The root's "post_processor". Supported: null (or absent), ByteLevel (which changes only offsets,
// and wideep has none), TemplateProcessing, or a Sequence with at most one TemplateProcessing. Only
// the template "single" is used, not the one for pairs of texts.
PostProcessor read_post_processor(const Component& root, const Vocabulary& vocabulary);

// The root's "decoder". Supported: ByteLevel alone; Replace, ByteFallback, Fuse, Strip, Metaspace,
// a Sequence of these. After a Fuse no step may need whole tokens.
Decoder read_decoder(const Component& root);

}  // namespace wideep::tokenizer
