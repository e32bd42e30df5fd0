// SPDX-License-Identifier: Apache-2.0
//
// The functions of base/utf8.h by the name of this room, whose texts are full of them.
#pragma once

#include "base/utf8.h"

namespace wideep::tokenizer {

using base::append_utf8;
using base::cut_short_bytes;
using base::first_code_point;
using base::first_unit;
using base::is_valid_utf8;
using base::last_code_point;
using base::replace_invalid_utf8;
using base::Utf8Kind;
using base::Utf8Unit;

}  // namespace wideep::tokenizer
