// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a one-line error, or metadata and tensors that lie within the file.
#include <cstdint>

#include "base/check.h"
#include "tensor_files/gguf.h"

using wideep::tensor_files::GgufFile;
using wideep::tensor_files::GgufValue;

namespace {

// Every accessor answers for every element.
void look_at(const GgufValue& value) {
  WIDEEP_CHECK(!value.describe().empty());
  size_t answers = 0;
  for (size_t i = 0; i < value.size(); ++i) {
    answers += value.number(i).has_value() || value.boolean(i).has_value() ||
               value.text(i).has_value() || value.type() == GgufValue::Type::kU64;
  }
  WIDEEP_CHECK_EQ(answers, value.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto file = GgufFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    WIDEEP_CHECK_EQ(file.status().exit_code(), 2);
    WIDEEP_CHECK_EQ(file.status().message().find('\n'), std::string::npos);
    return 0;
  }
  for (const auto& [key, value] : file->metadata()) look_at(value);
  size_t total = 0;
  for (const auto& [name, tensor] : file->tensors()) {
    WIDEEP_CHECK(tensor.bytes.data() >= bytes.data());
    WIDEEP_CHECK(tensor.bytes.data() + tensor.bytes.size() <= bytes.data() + size);
    const auto rows = static_cast<size_t>(tensor.num_elements() / tensor.columns());
    WIDEEP_CHECK_EQ(rows * tensor.row_bytes(), tensor.bytes.size());
    total += tensor.bytes.size();
  }
  WIDEEP_CHECK_LE(total, size);
  return 0;
}
