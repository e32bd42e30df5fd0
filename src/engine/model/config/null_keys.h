// SPDX-License-Identifier: Apache-2.0
//
// Nulls in config.json. To transformers a null is a value: where its configuration classes allow
// one, it may mean something else than an absent key (rope_interleave: false), elsewhere it is an
// error. Readers take a null for an absent key, so those that mean something else are found here.
//
// Thread safety: pure functions.
#pragma once

#include <string_view>

#include "formats/json.h"

namespace wideep::model {

// Records an error for the first key of the object that a reader has asked for, whose null is not
// known to mean what an absent key does. After the readers. model_type: of the family.
void check_nulls(const formats::JsonObject& text, std::string_view model_type);

}  // namespace wideep::model
