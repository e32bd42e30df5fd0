// SPDX-License-Identifier: Apache-2.0
//
// The family of wideep's whose keys a config.json of an unknown one resembles most: where somebody
// who adds the unknown one begins.
//
// Thread safety: a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/json.h"
#include "model/families/family.h"

namespace wideep::model {

struct NearestFamily {
  const Family* family = nullptr;
  std::vector<std::string> unread;  // keys of the file that its reader does not ask for
};

// root: the whole file; of a wrapper the keys of text_config are compared. has_experts: with those
// of families with experts, or of dense ones. Nothing: there are few keys, or no family reads most
// of them. That a family reads a key does not mean that it computes what the unknown one does.
std::optional<NearestFamily> nearest_family(const formats::JsonObject& root, bool has_experts);

}  // namespace wideep::model
