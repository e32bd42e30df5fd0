// SPDX-License-Identifier: Apache-2.0
//
// What a path that names no model is instead: a name on Hugging Face, a directory without a
// configuration, weights alone, a file of another format; and what is wanted in its place.
//
// Thread safety: a pure function of the file system.
#pragma once

#include <string>

#include "wideep/status.h"

namespace wideep::model {

// Whether `path` is a directory with config.json, or a file that may be GGUF: what is in them is
// checked by who reads them. Reads names, and a few bytes of a file. Errors (invalid input): it is
// neither; the message says what it is and what to do.
Status check_model_path(const std::string& path);

}  // namespace wideep::model
