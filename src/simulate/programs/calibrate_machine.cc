// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "simulate/calibrate.h"

int main() {
  using namespace wideep;  // NOLINT(google-build-using-namespace): a program
  simulate::CalibrationView view;
  const auto found =
      simulate::calibrate({.formats = {kernels::WeightFormat::kBf16, kernels::WeightFormat::kInt8,
                                       kernels::WeightFormat::kInt4}},
                          view);
  if (!found.ok()) {
    fmt::print(stderr, "error: {}\n", found.status().message());
    return 2;
  }
  fmt::print("{}# errors: experts {:.3f} dense {:.3f}\n", simulate::hardware_text(found->hardware),
             found->errors.experts, found->errors.dense);
}
