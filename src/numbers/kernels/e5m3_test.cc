// SPDX-License-Identifier: Apache-2.0
#include "kernels/e5m3.h"

#include <gtest/gtest.h>

#include "base/dtype.h"

namespace wideep::kernels {
namespace {

TEST(E5m3, EveryE4m3IsExact) {
  for (unsigned code = 0; code < 0x7f; ++code) {
    F8E4M3 expected;
    expected.bits = static_cast<uint8_t>(code);
    const uint8_t packed = e5m3_from_e4m3(expected.bits);
    EXPECT_EQ(float_from_e5m3(packed), static_cast<float>(expected)) << "code " << code;
    EXPECT_EQ(e5m3_from_e4m3(static_cast<uint8_t>(code | 0x80)), packed);  // no sign
  }
}

}  // namespace
}  // namespace wideep::kernels
