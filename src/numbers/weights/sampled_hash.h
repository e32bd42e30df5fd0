// SPDX-License-Identifier: Apache-2.0
//
// Tells the weights of two machines apart without reading all of them: a hash of each tensor's
// name, type and shape, and of pieces of its bytes.
//
// Training changes tensors everywhere, so a few KiB of each show it. A change of single numbers
// between the pieces is not seen. Modification times would see it, but differ between machines
// that have the same weights.
//
// Thread safety: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::weights {

struct SampledTensor {
  std::string_view name;
  std::string_view type;
  std::span<const int64_t> shape;
  std::span<const std::byte> bytes;
};

// 16 hexadecimal digits. Reads 1 KiB of each 4 MiB of a tensor, its begin and its end among them,
// and at least 4 KiB of it.
std::string sampled_hash(const std::vector<SampledTensor>& tensors);

}  // namespace wideep::weights
