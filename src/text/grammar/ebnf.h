// SPDX-License-Identifier: Apache-2.0
//
// Grammars in the notation of GBNF, as llama.cpp, XGrammar and vLLM's guided_grammar take it:
//
//   root  ::= "[" list? "]"     # a comment
//   list  ::= item ("," item)*
//   item  ::= [a-z]+ | [0-9]{1,3} | "\"" [^"\n]* "\""
//
// Literals and classes have the escapes of regular expressions (grammar/regex.h); a class may not
// begin with ]. A rule goes on until the next name with ::=. Rules may call themselves, but not as
// their first part.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "grammar/expression.h"
#include "wideep/status.h"

namespace wideep::grammar {

// Adds the rules of a grammar; returns the number of `root`. Errors (invalid input): "at byte 5:
// …"; a rule that is missing, with its name. Bounded in depth.
Result<int> parse_ebnf(std::string_view text, Rules* rules);

}  // namespace wideep::grammar
