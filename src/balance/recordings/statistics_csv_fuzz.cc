// SPDX-License-Identifier: Apache-2.0
// Any bytes as a table of counts: statistics that have what they claim, or one line of complaint.
#include <string>

#include "base/check.h"
#include "recordings/statistics_csv.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto statistics = parse_statistics_csv(text, "fuzz");
  if (!statistics.ok()) {
    WIDEEP_CHECK(statistics.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK(check_statistics(*statistics).ok());
  for (int layer = 0; layer < statistics->num_layers(); ++layer) {
    int64_t tokens = 0;
    for (int64_t count : statistics->layer_load(layer)) tokens += count;
    WIDEEP_CHECK_GT(tokens, 0);  // the sum does not overflow, and layers without load are left out
  }
  return 0;
}
