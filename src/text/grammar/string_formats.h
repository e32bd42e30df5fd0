// SPDX-License-Identifier: Apache-2.0
//
// Strings of JSON Schema's `format`: date, time, date-time, uuid, ipv4, email and hostname. Other
// formats say nothing about the text, as the standard has it.
//
// Thread safety: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "grammar/expression.h"

namespace wideep::grammar {

// What is inside the quotes; nullopt: the format is not known.
std::optional<Expression> string_format(std::string_view name);

}  // namespace wideep::grammar
