// SPDX-License-Identifier: Apache-2.0
//
// Unicode normalisation form C, as the tokenizers library computes it: by the tables of Unicode
// 9.0. Characters that are newer stay as and where they are, which matters only for combining marks
// (their order is not corrected) and one vowel sign (U+11938).
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::tokenizer {

// Whether ICU has what to_nfc needs. Errors (failed): ICU's data is missing.
Status check_nfc_available();

// Takes time in proportion to the text, whatever the order of its combining marks.
// REQUIRES: valid UTF-8, below 2 GiB; check_nfc_available(). Thread safe.
std::string to_nfc(std::string_view text);

}  // namespace wideep::tokenizer
