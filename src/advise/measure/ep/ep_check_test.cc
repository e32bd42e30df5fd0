// SPDX-License-Identifier: Apache-2.0
//
// The bounds hold for every value that ranks return, on every instruction set, and are nearly
// reached; rows and scales that are wrong by one step or one rank are found, wherever they are. A
// failure means that `wideep bench ep` refuses right rounds, or times wrong ones.
#include "measure/ep/ep_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "measure/ep/ep_sums.h"

namespace wideep::measure {
namespace {

using kernels::RowFormat;
using ::testing::HasSubstr;

constexpr RowFormat kFormats[] = {RowFormat::kBf16, RowFormat::kFp8, RowFormat::kNvfp4};
constexpr int kHidden = 520;  // the last scale of fp8 and of nvfp4 has fewer values

std::vector<std::byte> row_of(RowFormat format, float value, const kernels::Kernels& kernels) {
  const std::vector<Bf16> values(kHidden, Bf16(value));
  std::vector<std::byte> row(kernels::row_bytes(format, kHidden));
  kernels.encode_row(Dtype::kBf16, values.data(), format, kHidden, row.data());
  return row;
}

const kernels::Kernels& best_kernels() { return *kernels::select_kernels(nullptr).value(); }

Status check(RowFormat format, float value, const std::vector<std::byte>& row) {
  return check_row({format, kHidden, value}, row.data(), best_kernels());
}

// Not only what ranks return, 1 to 64, but every value of bf16 between: all roundings of the scale.
TEST(EpCheck, RightRowsAreWithinTheBoundWhichIsNearlyReached) {
  for (const RowFormat format : kFormats) {
    double max = 0.0;
    for (int i = 0; i < 6 * 128; ++i) {
      const float value = std::ldexp(1.0f + static_cast<float>(i % 128) / 128.0f, i / 128);
      for (const kernels::Kernels* each : kernels::all_kernels()) {
        if (!each->supported()) continue;
        const Status status = check(format, value, row_of(format, value, *each));
        EXPECT_TRUE(status.ok()) << each->isa << ": " << status.message();
      }
      const std::vector<std::byte> row = row_of(format, value, best_kernels());
      std::vector<float> found(kHidden);
      best_kernels().decode_row(format, row.data(), kHidden, Dtype::kF32, found.data());
      max = std::max(max, std::abs(double{found[0]} - value) / value);
    }
    EXPECT_LE(max, max_row_error(format));
    if (format == RowFormat::kFp8) {
      EXPECT_GT(max, 0.9 * max_row_error(format));
    }
  }
}

// The sums of up to 64 rows, as the kernel adds them up, beside sums in double.
TEST(EpCheck, RightSumsAreWithinTheBound) {
  std::mt19937 random(1);
  for (const RowFormat format : kFormats) {
    for (const EpSum kind : {EpSum::kRow, EpSum::kResidual}) {
      for (int trial = 0; trial < 300; ++trial) {
        const int n = 1 + static_cast<int>(random() % 64);
        std::vector<std::vector<std::byte>> rows;
        std::vector<const std::byte*> places;
        std::vector<float> weights;
        double expected = 0.0;
        for (int i = 0; i < n; ++i) {
          const auto value = static_cast<float>(1 + random() % 64);
          weights.push_back(static_cast<float>(1 + random() % 100) / 5000.0f);
          expected += double{weights.back()} * value;
          rows.push_back(row_of(format, value, best_kernels()));
        }
        for (const auto& row : rows) places.push_back(row.data());
        EpSums sums(kind, 1, kHidden, best_kernels());
        sums.add_up(0, places, weights.data(), format, nullptr);
        EXPECT_TRUE(sums.matches(0, expected, format, n))
            << kernels::row_format_name(format) << ": " << expected << ", " << sums.first(0);
        // A bound that also holds a row's loss would find nothing.
        if (n > 1 && n <= 8) {
          sums.clear();
          places.pop_back();
          sums.add_up(0, places, weights.data(), format, nullptr);
          const double lost = weights.back() / expected;  // at least, since values are 1 or more
          EXPECT_TRUE(lost < 0.01 || !sums.matches(0, expected, format, n));
        }
      }
    }
  }
}

// Seeded faults: another rank's row, at any place one scale that is off by a step, one code, a row
// of zeros.
TEST(EpCheck, WrongRowsAndScalesAreFound) {
  std::mt19937 random(7);
  for (const RowFormat format : kFormats) {
    for (int trial = 0; trial < 300; ++trial) {
      const auto value = static_cast<float>(1 + random() % 64);
      const auto neighbour = value == 64.0f ? 63.0f : value + 1.0f;
      EXPECT_FALSE(check(format, value, row_of(format, neighbour, best_kernels())).ok());
      const std::vector<std::byte> right = row_of(format, value, best_kernels());
      EXPECT_FALSE(check(format, value, std::vector<std::byte>(right.size())).ok());

      std::vector<std::byte> wrong = right;
      const size_t codes = kernels::row_scales_offset(format, kHidden);
      const int groups = kernels::row_groups(format, kHidden);
      std::byte* scales = wrong.data() + codes;
      if (format == RowFormat::kFp8) {  // the scale of a value that is one of 64 larger
        float scale;
        std::byte* place = scales + random() % groups * sizeof(float);
        std::memcpy(&scale, place, sizeof(scale));
        scale *= 1.0f + 1.0f / 64.0f;
        std::memcpy(place, &scale, sizeof(scale));
        EXPECT_THAT(check(format, value, wrong).message(), HasSubstr("of a result in fp8"));
      }
      if (format == RowFormat::kNvfp4) {  // the next code of a scale
        std::byte& scale = scales[random() % groups];
        scale = std::byte(std::to_integer<int>(scale) - 1);
        EXPECT_FALSE(check(format, value, wrong).ok());
      }
      wrong = right;  // the lowest bit of a value
      const size_t width = format == RowFormat::kNvfp4 ? kHidden / 2 : kHidden;
      const size_t bytes = format == RowFormat::kBf16 ? 2 : 1;
      wrong[random() % width * bytes] ^= std::byte{1};
      EXPECT_FALSE(check(format, value, wrong).ok());
    }
  }
}

}  // namespace
}  // namespace wideep::measure
