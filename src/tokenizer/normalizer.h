// SPDX-License-Identifier: Apache-2.0
//
// Unicode normalisation form C with the tables of Unicode 9.0, which the tokenizers library uses.
// Newer characters are not changed or moved. This matters only for newer combining marks, which are
// not sorted, and for one vowel sign (U+11938).
#pragma once

#include <string>
#include <string_view>

#include "wideep/status.h"

namespace wideep::tokenizer {

// Checks that ICU has the data that to_nfc() needs. Errors (failed): ICU's data is missing.
Status check_nfc_available();

// Takes linear time, whatever the order of the combining marks.
// REQUIRES: valid UTF-8, below 2 GiB; check_nfc_available() returned ok. Thread safe.
std::string to_nfc(std::string_view text);

}  // namespace wideep::tokenizer
