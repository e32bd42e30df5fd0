// SPDX-License-Identifier: Apache-2.0
//
// Carries out what a template says.
#pragma once

#include <map>
#include <string>

#include "chat/template_syntax.h"
#include "wideep/status.h"

namespace wideep::chat {

// The names a template sees from the start; range(), namespace(), dict() and raise_exception()
// are always there.
using Names = std::map<std::string, Value, std::less<>>;

// Errors (invalid input): "line N: …"; what the template raises; work or output without end
// (3 million steps, 64 bytes or one element that are made being a step, too; 64 MiB); nesting
// (100 calls, 1500 expressions, values of kMaxValueDepth).
Result<std::string> render_template(const Block& block, Names names);

}  // namespace wideep::chat
