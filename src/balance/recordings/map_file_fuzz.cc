// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of maps: maps of a consistent shape, whose check does not fall over, or one
// line of complaint.
#include <string>

#include "base/check.h"
#include "recordings/map_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto model = recordings::parse_map_json(text, "fuzz", 0, size % 2 == 0 ? 2 : 0);
  if (!model.ok()) return 0;
  WIDEEP_CHECK_EQ(model->layers.size(), model->maps.size());
  for (const balance::ExpertMaps& maps : model->maps) {
    for (const balance::MapFault& fault : balance::check_maps(maps)) {
      WIDEEP_CHECK_GE(fault.number, 1);
      WIDEEP_CHECK_EQ(fault.text.find('\n'), std::string::npos);
    }
  }
  return 0;
}
