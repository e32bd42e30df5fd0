// SPDX-License-Identifier: Apache-2.0
//
// Which family of models computes a config.json.
//
// Thread safety: pure functions.
#pragma once

#include "formats/json.h"
#include "model/families/family.h"

namespace wideep::model {

// The class decides if there is one: DeepSeek-V3's computes Kimi-K2, whose model_type is its own.
// nullptr after an error, which is recorded: no family does, with the nearest reason; or the
// model_type is not one of the class, so that absent keys may mean something else.
const Family* find_family(const formats::JsonObject& root);

// Records an error unless the text model's own model_type, if it has one, is of this family.
void check_text_model_type(const formats::JsonObject& text, const Family& family);

}  // namespace wideep::model
