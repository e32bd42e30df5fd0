// SPDX-License-Identifier: Apache-2.0
// Any bytes as a disagg_config.yaml: a description with at least one server or a cluster, or one
// line of complaint.
#include <string>

#include "base/check.h"
#include "disaggregated/disagg_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::disaggregated;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = parse_disagg_config(text, "fuzz");
  if (!config.ok()) {
    WIDEEP_CHECK(config.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK(config->cluster.has_value() == config->members().empty());
  WIDEEP_CHECK(!describe(*config).empty());
  return 0;
}
