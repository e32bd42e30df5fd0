// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a one-line error, or tensors that tile the file's data.
#include "tensor_files/safetensors.h"

#include <cstdint>

#include "base/check.h"
#include "tensor_files/shape.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = wideep::tensor_files::SafetensorsFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    WIDEEP_CHECK_EQ(file.status().exit_code(), 2);
    WIDEEP_CHECK_EQ(file.status().message().find('\n'), std::string::npos);
    return 0;
  }
  size_t total = 0;
  for (const auto& [name, entry] : file->tensors()) {
    const auto expected = wideep::tensor_files::num_bytes(entry.shape, entry.dtype);
    WIDEEP_CHECK_EQ(expected.value_or(-1), static_cast<int64_t>(entry.bytes.size()));
    if (!entry.bytes.empty()) WIDEEP_CHECK(entry.bytes.data() >= bytes.data() + 8);
    total += entry.bytes.size();
  }
  WIDEEP_CHECK_LE(total + 8, size);
  return 0;
}
