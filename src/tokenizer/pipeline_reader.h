// SPDX-License-Identifier: Apache-2.0
//
// The steps of a tokenizer.json around its model. Each reader complains, naming the key, about a
// type or an option that wideep does not compute, and then returns something unfinished; callers
// look at the component's status.
#pragma once

#include "tokenizer/component.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace wideep::tokenizer {

// Whether "normalizer" of the root asks for NFC: null (or absent), NFC, or a Sequence of these.
bool read_normalizer(const Component& root);

// "pre_tokenizer" of the root: ByteLevel, or a Sequence of Split (behavior Isolated, not inverted)
// with ByteLevel at its end.
PreTokenizer read_pre_tokenizer(const Component& root);

// "post_processor" of the root: null (or absent), ByteLevel (it moves offsets only, of which wideep
// has none), TemplateProcessing for one sequence, or a Sequence with at most one of the latter.
// The template for pairs of sequences is not used.
PostProcessor read_post_processor(const Component& root, const Vocabulary& vocabulary);

// "decoder" of the root: ByteLevel, or a Sequence of one.
void check_decoder(const Component& root);

}  // namespace wideep::tokenizer
