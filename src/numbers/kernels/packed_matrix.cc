// SPDX-License-Identifier: Apache-2.0
#include "kernels/packed_matrix.h"

namespace wideep::kernels {

int default_group(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
    case WeightFormat::kBf16:
      return 0;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
      return 128;
    case WeightFormat::kInt4:
      return 64;
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt4m:
    case WeightFormat::kInt8m:
    case WeightFormat::kInt4h:
    case WeightFormat::kInt8h:
      return 32;
    case WeightFormat::kNvfp4:
      return 16;
  }
  return 0;
}

int PackedShape::block_k() const {
  switch (format) {
    case WeightFormat::kF32:
      return k;
    case WeightFormat::kBf16:
      return (k + 1) / 2 * 2;
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
    case WeightFormat::kInt4:
    case WeightFormat::kInt4h:
    case WeightFormat::kInt8h:
      return group;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return kGroupsOfBlock * group;
    case WeightFormat::kInt4m:
    case WeightFormat::kInt8m:
      return kTwoLevelBlock;
  }
  return 0;
}

size_t PackedShape::block_bytes() const {
  const size_t values = static_cast<size_t>(block_k()) * kPanelWidth;
  switch (format) {
    case WeightFormat::kF32:
      return values * sizeof(float);
    case WeightFormat::kBf16:
      return values * sizeof(Bf16);
    case WeightFormat::kFp8:
    case WeightFormat::kInt8:
    case WeightFormat::kInt8h:
      return kScaleBytes + values;
    case WeightFormat::kInt4:
    case WeightFormat::kInt4h:
      return kScaleBytes + values / 2;
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
      return kGroupsOfBlock * kPanelWidth + values / 2;
    case WeightFormat::kInt4m:
    case WeightFormat::kInt8m: {
      const auto scales = 2 * static_cast<size_t>(groups_of_block()) * kPanelWidth;
      return scales + (format == WeightFormat::kInt8m ? values : values / 2) + 2 * kScaleBytes;
    }
  }
  return 0;
}

}  // namespace wideep::kernels
