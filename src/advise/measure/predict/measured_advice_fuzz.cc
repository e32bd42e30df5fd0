// SPDX-License-Identifier: Apache-2.0
// Any bytes as the calibration that `wideep advise --measure` keeps: factors within their bounds,
// or one line of complaint.
#include <string>

#include "base/check.h"
#include "measure/predict/measured_advice.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::measure;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto calibration = parse_advice_calibration(text, "fuzz");
  if (!calibration.ok()) {
    WIDEEP_CHECK(calibration.status().message().find('\n') == std::string::npos);
    return 0;
  }
  const wideep::cost::PartFactors &generating = calibration->factors.generating,
                                  &prompts = calibration->factors.prompts;
  for (const double factor : {generating.experts, generating.dense, generating.exchange,
                              prompts.experts, prompts.dense, prompts.exchange}) {
    WIDEEP_CHECK(factor >= 0.25 && factor <= 4.0);
  }
  for (const MeasuredCell& cell : calibration->measured) WIDEEP_CHECK(cell.measured > 0.0);
  return 0;
}
