// SPDX-License-Identifier: Apache-2.0
//
// What a request wants its answer to be, as a grammar.
//
// Thread safety: plain values; pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "grammar/expression.h"
#include "grammar/grammar.h"
#include "wideep/status.h"

namespace wideep::grammar {

struct OutputFormat {
  enum class Kind { kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kJsonObject;
  // kJsonSchema: as formats::parse_exact_json() reads it.
  nlohmann::ordered_json schema = {};
  // kRegex: the pattern; kGrammar: the text of the grammar; kChoice: one of these.
  std::vector<std::string> texts = {};
  // Of JSON: a regular expression for what may be between its parts; "": nothing. nullopt: what
  // JsonText allows.
  std::optional<std::string> whitespace = {};
  bool allows_more_members = false;  // SchemaOptions
  std::string place = {};            // the field of the request, for messages
};

// Adds its rules; returns what the whole answer is. Errors (invalid input): "<place>: …", of a
// schema with the place in it.
Result<Expression> add_output(const OutputFormat& format, Rules* rules);

// That alone, as a grammar. Errors: also those of build_grammar().
Result<Grammar> compile_output(const OutputFormat& format, const BuildLimits& limits = {});

}  // namespace wideep::grammar
