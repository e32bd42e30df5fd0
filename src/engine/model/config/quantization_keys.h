// SPDX-License-Identifier: Apache-2.0
//
// Finds the keys of quantization_config that no reader has asked for: those that change what the
// tensors mean are refused, those that are not known to be harmless are named.
//
// Not thread safe.
#pragma once

#include <string>
#include <vector>

#include "formats/json.h"
#include "model/config/config.h"

namespace wideep::model {

class QuantizationKeys {
 public:
  // Of one object, after its readers. path: from quantization_config to it, "" for itself. Records
  // an error for a key that changes what weights mean.
  void check(const formats::JsonObject& object, const std::string& path);

  // Adds a line to config->notes that names the unknown ones, if there are any.
  void note(const std::string& file, ModelConfig* config) const;

 private:
  std::vector<std::string> unknown_;
};

}  // namespace wideep::model
