// SPDX-License-Identifier: Apache-2.0
//
// Renders a parsed template.
#pragma once

#include <map>
#include <string>

#include "jinja/template_syntax.h"
#include "wideep/status.h"

namespace wideep::jinja {

// The variables of a template. range(), namespace(), dict() and raise_exception() are added to
// them.
using Names = std::map<std::string, Value, std::less<>>;

// Errors (invalid input), "line N: …": the template calls raise_exception(); an operation fails; a
// limit is exceeded. The limits are 3 million steps (an expression, a statement, an element, or 64
// bytes of text count as one), 64 MiB of output, 100 nested macro calls, 1500 nested expressions,
// and values nested kMaxValueDepth deep. Thread safe: the block is not changed.
Result<std::string> render_template(const Block& block, Names names);

}  // namespace wideep::jinja
