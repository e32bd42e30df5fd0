// SPDX-License-Identifier: Apache-2.0
//
// Random rules, files and names: no crash, and a slice lies in its tensor.
#include <fuzzer/FuzzedDataProvider.h>

#include <map>

#include "base/check.h"
#include "weights/named_tensors.h"

namespace wideep::weights {
namespace {

using tensor_files::TensorEntry;

// Tensors of zeros: only shapes matter here.
class Shapes : public TensorSource {
 public:
  void add(const std::string& name, std::vector<int64_t> shape) {
    static const std::byte zeros[6 * 6 * 6 * sizeof(Bf16)] = {};
    size_t bytes = sizeof(Bf16);
    for (const int64_t extent : shape) bytes *= static_cast<size_t>(extent);
    entries_[name] = {Dtype::kBf16, std::move(shape), std::span(zeros).first(bytes)};
  }
  Result<const TensorEntry*> tensor(const std::string& name,
                                    const std::vector<int64_t>& shape) const override {
    const TensorEntry* entry = find(name);
    if (entry != nullptr && entry->shape == shape) return entry;
    return invalid_input(name + ": missing, or another shape");
  }
  const TensorEntry* find(const std::string& name) const override {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

 private:
  std::map<std::string, TensorEntry> entries_;
};

// Names of parts that meet each other, and sometimes any bytes.
std::string random_path(FuzzedDataProvider& data, bool pattern) {
  constexpr const char* kParts[] = {"model",     "layers",  "mlp",    "experts",      "gate_proj",
                                    "down_proj", "up_proj", "weight", "gate_up_proj", "bias"};
  std::string path;
  const int count = data.ConsumeIntegralInRange(1, 6);
  for (int i = 0; i < count; ++i) {
    if (i > 0) path += '.';
    const int choice = data.ConsumeIntegralInRange(0, 12);
    if (choice < 10) {
      path += kParts[choice];
    } else if (choice == 10) {
      path += data.ConsumeRandomLengthString(4);
    } else {
      path += pattern ? "*" : std::to_string(data.ConsumeIntegralInRange(0, 4));
    }
  }
  return path;
}

int64_t numbers_of(const std::string& path) {
  int64_t count = 0;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    count += path.substr(begin, end - begin) == "*" ? 1 : 0;
    begin = end + 1;
  }
  return count;
}

TensorPart random_part(FuzzedDataProvider& data) {
  return {static_cast<TensorPart::Rows>(data.ConsumeIntegralInRange(0, 4)), data.ConsumeBool()};
}

TensorNames random_names(FuzzedDataProvider& data) {
  TensorNames names;
  for (int rules = data.ConsumeIntegralInRange(0, 4); rules > 0; --rules) {
    const std::string canonical = random_path(data, true), published = random_path(data, true);
    const int64_t less = numbers_of(canonical) - numbers_of(published);
    if (less == 0 || less == 1) names.rename(canonical, published, random_part(data));
  }
  if (data.ConsumeBool()) names.prefix(data.ConsumeBool() ? "" : "model.", "language_model.");
  return names;
}

std::vector<int64_t> random_shape(FuzzedDataProvider& data) {
  std::vector<int64_t> shape;
  for (int axes = data.ConsumeIntegralInRange(0, 3); axes > 0; --axes) {
    shape.push_back(data.ConsumeIntegralInRange(1, 6));
  }
  return shape;
}

void check_slice(const TensorSlice& slice, const std::vector<int64_t>& shape) {
  int64_t asked = 1;
  for (const int64_t extent : shape) asked *= extent;
  WIDEEP_CHECK_EQ(slice.num_elements(), asked);
  WIDEEP_CHECK_GE(slice.first, 0);
  const int64_t last =
      slice.first + (slice.rows - 1) * slice.row_stride + (slice.columns - 1) * slice.column_stride;
  WIDEEP_CHECK_LT(last, slice.entry->num_elements());
}

void check_name(const NamedTensors& tensors, const std::string& name,
                const std::vector<int64_t>& shape) {
  const auto slice = tensors.slice(name, shape);
  if (slice.ok()) check_slice(*slice, shape);
  const StoredModule module = tensors.module(name);
  WIDEEP_CHECK(module.source != nullptr);
  WIDEEP_CHECK_LT(module.part, module.parts);
  WIDEEP_CHECK_EQ(tensors.has(name), module.source->has(tensors.published_name(name)));
  WIDEEP_CHECK(!tensors.where(name).empty() || tensors.published_name(name).empty());
}

}  // namespace
}  // namespace wideep::weights

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace wideep::weights;
  FuzzedDataProvider data(bytes, size);
  const TensorNames names = random_names(data);
  Shapes files;
  for (int count = data.ConsumeIntegralInRange(0, 6); count > 0; --count) {
    files.add(random_path(data, false), random_shape(data));
  }
  const NamedTensors tensors(files, files.names(), names, data.ConsumeIntegralInRange(1, 6));
  for (int count = 0; count < 4; ++count) {
    const std::string name = random_path(data, false);
    check_name(tensors, name, random_shape(data));
    // What the rules make of the name exists.
    const auto published = names.published(name);
    if (!published.empty()) files.add(published.front().name, random_shape(data));
    check_name(tensors, name, random_shape(data));
  }
  return 0;
}
