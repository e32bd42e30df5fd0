// SPDX-License-Identifier: Apache-2.0
#include "cuda/dependent_launches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace wideep::cuda {
namespace {

using testing::HasSubstr;

class DependentLaunches : public testing::Test {
 protected:
  DependentLaunches() { clear(); }
  ~DependentLaunches() override { clear(); }

  static void clear() {
    unsetenv("TRTLLM_ENABLE_PDL");
    unsetenv("WIDEEP_CUDA_DEPENDENT_LAUNCHES");
  }
};

TEST_F(DependentLaunches, AreOnUnlessAVariableSaysOtherwise) {
  EXPECT_TRUE(dependent_launches().value());
  for (const char* name : {"TRTLLM_ENABLE_PDL", "WIDEEP_CUDA_DEPENDENT_LAUNCHES"}) {
    for (const auto& [value, on] : {std::pair{"0", false}, std::pair{"1", true}}) {
      setenv(name, value, 1);
      EXPECT_EQ(dependent_launches().value(), on) << name << "=" << value;
    }
    setenv(name, "", 1);
    EXPECT_TRUE(dependent_launches().value()) << name;
    clear();
  }
}

TEST_F(DependentLaunches, OtherValuesAndContradictionsAreRefused) {
  for (const char* name : {"TRTLLM_ENABLE_PDL", "WIDEEP_CUDA_DEPENDENT_LAUNCHES"}) {
    setenv(name, "on", 1);
    EXPECT_THAT(dependent_launches().status().message(),
                HasSubstr(std::string(name) + ": expected 0 or 1, found on"));
    clear();
  }
  setenv("TRTLLM_ENABLE_PDL", "1", 1);
  setenv("WIDEEP_CUDA_DEPENDENT_LAUNCHES", "1", 1);
  EXPECT_TRUE(dependent_launches().value());
  setenv("WIDEEP_CUDA_DEPENDENT_LAUNCHES", "0", 1);
  EXPECT_THAT(dependent_launches().status().message(),
              HasSubstr("TRTLLM_ENABLE_PDL=1 contradicts WIDEEP_CUDA_DEPENDENT_LAUNCHES=0"));
}

}  // namespace
}  // namespace wideep::cuda
