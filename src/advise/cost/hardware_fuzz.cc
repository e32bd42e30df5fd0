// SPDX-License-Identifier: Apache-2.0
// Any bytes as a description of hardware: one without contradictions, or one line of complaint.
#include <string>

#include "base/check.h"
#include "cost/hardware.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::cost;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto hardware = parse_hardware(text, "fuzz");
  if (!hardware.ok()) {
    WIDEEP_CHECK(hardware.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK(!hardware->peak.empty());
  WIDEEP_CHECK_GE(hardware->node_link_ranks, hardware->devices_per_node);
  for (const auto& [format, kernels] : hardware->of_formats) {
    WIDEEP_CHECK(hardware->supports(format));
  }
  return 0;
}
