// SPDX-License-Identifier: Apache-2.0
//
// Reads the steps around the model of a tokenizer.json. Each reader reports types and options that
// wideep does not support, with their key, to the component, and then returns an incomplete result:
// callers must check the component's status.
#pragma once

#include "tokenizer/component.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// Whether the root's "normalizer" contains NFC. Supported: null (or absent), NFC, a Sequence of
// these.
bool read_normalizer(const Component& root);

// The root's "pre_tokenizer". Supported: ByteLevel, or a Sequence of Split (behavior Isolated, not
// inverted) that ends with ByteLevel.
PreTokenizer read_pre_tokenizer(const Component& root);

// The root's "post_processor". Supported: null (or absent), ByteLevel (which changes only offsets,
// and wideep has none), TemplateProcessing, or a Sequence with at most one TemplateProcessing. Only
// the template "single" is used, not the one for pairs of texts.
PostProcessor read_post_processor(const Component& root, const Vocabulary& vocabulary);

// Checks the root's "decoder". Supported: ByteLevel, or a Sequence with one ByteLevel.
void check_decoder(const Component& root);

}  // namespace wideep::tokenizer
