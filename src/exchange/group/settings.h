// SPDX-License-Identifier: Apache-2.0
//
// Settings that all ranks of a run must have in common, compared before they begin.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "wideep/status.h"

namespace wideep::transport {

// Names and values, in the same order on all ranks.
using Settings = std::vector<std::pair<std::string, std::string>>;

// Compares the settings of 0 (`first`) and of `number` (`other`). who: "ranks" or "nodes". Errors
// (invalid input): the first setting that differs, with both values.
Status check_settings_match(const Settings& first, const Settings& other, int number,
                            const char* who = "ranks");

// The name of that setting; "": none differs.
std::string name_of_difference(const Settings& first, const Settings& other);

// For a message; they may contain any byte.
std::string to_text(const Settings& settings);
Settings settings_from(const std::string& text);

}  // namespace wideep::transport
