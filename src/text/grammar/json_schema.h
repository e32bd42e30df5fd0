// SPDX-License-Identifier: Apache-2.0
//
// JSON Schema as rules: every text that matches is a value that the schema allows. Not every such
// value can be written: members come in the order of `properties`, objects have others only where
// additionalProperties says so, and numbers with bounds have no exponents. docs/serve.md lists the
// keywords that are taken. A keyword that constrains values and is not taken is refused, with its
// place, and so is a schema that no value satisfies.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "grammar/expression.h"
#include "grammar/json_text.h"
#include "wideep/status.h"

namespace wideep::grammar {

struct SchemaOptions {
  JsonStyle style = {};
  // Objects may have other members than `properties` unless the schema says no. Off, as in OpenAI's
  // strict mode and in XGrammar's: a model would not know when to end.
  bool allows_more_members = false;
};

// Adds the rules of a schema, as formats::parse_exact_json() reads it, and returns what calls them.
// Errors (invalid input): "#/properties/age/minimum: …", the place as a JSON pointer. Bounded in
// depth; build_grammar() bounds the rest, and names rules by their places too.
Result<Expression> add_json_schema(const nlohmann::ordered_json& schema,
                                   const SchemaOptions& options, Rules* rules);

}  // namespace wideep::grammar
