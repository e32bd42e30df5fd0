// SPDX-License-Identifier: Apache-2.0
//
// Arrays as numpy.save writes them (format version 1.0), for clients that read them with
// numpy.load.
//
//   6 bytes   "\x93NUMPY"
//   2 bytes   version: 1, 0
//   2 bytes   header length n, little endian
//   n bytes   a Python dict of dtype, order and shape, spaces, "\n"; ends at a multiple of 64 bytes
//   the rest  elements, row-major
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace wideep::formats {

// An int32 array, little endian: byte by byte what numpy.save writes of it. REQUIRES: shape is not
// empty, and the product of its sizes is the number of values.
std::string npy_of(std::span<const int32_t> values, std::span<const int64_t> shape);

}  // namespace wideep::formats
