// SPDX-License-Identifier: Apache-2.0
//
// The bytes are those that numpy.save of numpy 2.4.6 has written.
#include "formats/npy.h"

#include <gtest/gtest.h>

#include <vector>

namespace wideep::formats {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);

// dict: without the spaces that follow. length: of the header.
std::string expected(std::string_view dict, size_t length, std::string_view elements) {
  std::string bytes(kMagic);
  bytes += static_cast<char>(length);
  bytes += '\0';
  bytes += dict;
  bytes.append(length - dict.size() - 1, ' ');
  bytes += '\n';
  bytes += elements;
  return bytes;
}

TEST(Npy, IsWhatNumpyWrites) {
  const std::vector<int32_t> values = {-2, 998, 1998, 2998, 3998, 4998};
  const std::vector<int64_t> shape = {1, 3, 2};
  EXPECT_EQ(npy_of(values, shape),
            expected("{'descr': '<i4', 'fortran_order': False, 'shape': (1, 3, 2), }", 118,
                     std::string_view("\xfe\xff\xff\xff\xe6\x03\x00\x00\xce\x07\x00\x00"
                                      "\xb6\x0b\x00\x00\x9e\x0f\x00\x00\x86\x13\x00\x00",
                                      24)));
}

TEST(Npy, OneDimension) {
  const std::vector<int32_t> values = {7, -1};
  EXPECT_EQ(npy_of(values, std::vector<int64_t>{2}),
            expected("{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }", 118,
                     std::string_view("\x07\x00\x00\x00\xff\xff\xff\xff", 8)));
}

TEST(Npy, NoElements) {
  EXPECT_EQ(npy_of({}, std::vector<int64_t>{0, 3, 2}),
            expected("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 3, 2), }", 118, ""));
}

// The room for a first size of 21 digits decides where a long header ends.
TEST(Npy, LongShapes) {
  std::vector<int64_t> shape = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  EXPECT_EQ(npy_of({}, shape),
            expected("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 1, 2, 3, 4, 5, 6, 7, "
                     "8, 9, 10, 11, 12), }",
                     118, ""));
  shape.insert(shape.end(), {1, 1, 1});
  EXPECT_EQ(npy_of({}, shape),
            expected("{'descr': '<i4', 'fortran_order': False, 'shape': (0, 1, 2, 3, 4, 5, 6, 7, "
                     "8, 9, 10, 11, 12, 1, 1, 1), }",
                     182, ""));
}

}  // namespace
}  // namespace wideep::formats
