// SPDX-License-Identifier: Apache-2.0
//
// candidates() lists the tensors that a name may mean and choose() takes the first that the files
// have. All else follows from that choice: a whole tensor is compared with extents of 1 left out;
// a part becomes a slice with strides into the larger tensor, so halves, alternating rows and
// transposed matrices of experts need no copy of it. The first candidate stands in when none is
// found, so that a message names the tensor that was expected.
#include "weights/named_tensors.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"
#include "base/try.h"
#include "weights/stored_matrix.h"

namespace wideep::weights {
namespace {

using tensor_files::TensorEntry;
using Rows = TensorPart::Rows;

constexpr std::string_view kWeight = ".weight";

// The shape without extents of 1.
std::vector<int64_t> squeezed(std::vector<int64_t> shape) {
  std::erase(shape, 1);
  return shape;
}

}  // namespace

NamedTensors::NamedTensors(const TensorSource& files, std::span<const std::string> file_names,
                           TensorNames names, int num_experts, DeclaredLayout declared)
    : files_(files),
      names_(std::move(names)),
      num_experts_(num_experts),
      declared_(std::move(declared)) {
  for (const TensorNames::Prefix& prefix : names_.prefixes()) {
    const auto begins = [&](const std::string& name) { return name.starts_with(prefix.second); };
    if (std::none_of(file_names.begin(), file_names.end(), begins)) continue;
    prefix_ = prefix;
    return;
  }
}

std::vector<PublishedTensor> NamedTensors::candidates(const std::string& name) const {
  std::vector<PublishedTensor> all = names_.published(name);
  if (!prefix_) return all;
  for (PublishedTensor& each : all) {
    if (!each.name.starts_with(prefix_->first)) continue;
    each.name.replace(0, prefix_->first.size(), prefix_->second);
  }
  all.push_back({name});
  return all;
}

PublishedTensor NamedTensors::choose(const std::string& name) const {
  std::vector<PublishedTensor> all = candidates(name);
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const PublishedTensor& each) { return files_.has(each.name); });
  return std::move(found == all.end() ? all.front() : *found);
}

StoredModule NamedTensors::stored(const PublishedTensor& tensor) const {
  StoredModule module;
  module.source = &files_;
  module.name = tensor.name;
  if (tensor.expert) {
    module.num_experts = num_experts_;
    module.expert = *tensor.expert;
  }
  const Rows rows = tensor.part.rows;
  if (rows == Rows::kRange) {
    module.first = tensor.part.first;
    module.total = tensor.part.total;
  } else if (rows != Rows::kAll) {
    module.parts = 2;
  }
  module.part = rows == Rows::kSecondHalf || rows == Rows::kOdd ? 1 : 0;
  module.alternating = rows == Rows::kEven || rows == Rows::kOdd;
  module.transposed = tensor.part.transposed;
  module.declared = &declared_;
  return module;
}

StoredModule NamedTensors::module(const std::string& module) const {
  std::vector<PublishedTensor> all = candidates(module + std::string(kWeight));
  for (PublishedTensor& each : all) {
    if (each.name.ends_with(kWeight)) each.name.resize(each.name.size() - kWeight.size());
  }
  const auto found = std::find_if(all.begin(), all.end(), [&](const PublishedTensor& each) {
    return has_module(files_, each.name);
  });
  StoredModule stored = this->stored(found == all.end() ? all.front() : *found);
  // GPT-OSS transposes floats, but not the rows of its blocks.
  if (files_.has(stored.name + "_blocks")) stored.transposed = false;
  return stored;
}

Result<TensorSlice> NamedTensors::whole(const PublishedTensor& tensor,
                                        const std::vector<int64_t>& shape) const {
  const TensorEntry* entry = files_.find(tensor.name);
  const bool same = entry != nullptr && squeezed(entry->shape) == squeezed(shape);
  WIDEEP_TRY_ASSIGN(entry, files_.tensor(tensor.name, same ? entry->shape : shape));
  TensorSlice slice;
  slice.entry = entry;
  slice.rows = shape.size() < 2 ? 1 : shape.front();
  slice.columns = entry->num_elements() / std::max<int64_t>(slice.rows, 1);
  slice.row_stride = slice.columns;
  return slice;
}

Result<TensorSlice> NamedTensors::part(const PublishedTensor& tensor,
                                       const std::vector<int64_t>& shape) const {
  if (shape.empty() || shape.size() > 2) {
    return invalid_input(fmt::format("{}: expected a vector or a matrix in a part of this tensor",
                                     files_.where(tensor.name)));
  }
  const bool is_vector = shape.size() == 1;
  const StoredModule module = stored(tensor);
  const int64_t n = shape[0], k = is_vector ? 1 : shape[1], all_rows = module.all_rows(n);
  std::vector<int64_t> whole = {all_rows};
  if (!is_vector) whole.insert(tensor.part.transposed ? whole.begin() : whole.end(), k);
  if (tensor.expert) {
    // The matrices of the experts may stand below each other in one.
    std::vector<int64_t> stacked = whole;
    stacked.front() *= module.num_experts;
    const TensorEntry* found = files_.find(tensor.name);
    whole.insert(whole.begin(), module.num_experts);
    if (!is_vector && found != nullptr && found->shape == stacked) whole = stacked;
  }
  if (module.first_row(n) + (n - 1) * module.row_step() >= all_rows) {
    return invalid_input(fmt::format("{}: expected at least {} rows, found {}",
                                     files_.where(tensor.name), module.first_row(n) + n, all_rows));
  }
  TensorSlice slice;
  WIDEEP_TRY_ASSIGN(slice.entry, files_.tensor(tensor.name, whole));
  if (tensor.expert && module.expert >= module.num_experts) {
    return invalid_input(fmt::format("{}: expected an expert below {}, found {}",
                                     files_.where(tensor.name), module.num_experts, module.expert));
  }
  // Strides from one row to the next and from one column to the next of the matrix [all_rows, k].
  const bool transposed = tensor.part.transposed && !is_vector;
  const int64_t to_row = transposed ? 1 : k, to_column = transposed ? all_rows : 1;
  slice.first = module.expert * all_rows * k + module.first_row(n) * to_row;
  if (is_vector) {
    slice.columns = n;
    slice.row_stride = all_rows;
    slice.column_stride = module.row_step();
    return slice;
  }
  slice.rows = n;
  slice.columns = k;
  slice.row_stride = module.row_step() * to_row;
  slice.column_stride = to_column;
  return slice;
}

Result<TensorSlice> NamedTensors::slice(const std::string& name,
                                        const std::vector<int64_t>& shape) const {
  const PublishedTensor tensor = choose(name);
  return tensor.is_whole() ? whole(tensor, shape) : part(tensor, shape);
}

Result<const TensorEntry*> NamedTensors::tensor(const std::string& name,
                                                const std::vector<int64_t>& shape) const {
  WIDEEP_TRY_ASSIGN(const std::string published, whole_name(name));
  return files_.tensor(published, shape);
}

Result<const TensorEntry*> NamedTensors::tensor(const std::string& name,
                                                const std::vector<int64_t>& shape,
                                                std::span<const Dtype> dtypes) const {
  WIDEEP_TRY_ASSIGN(const std::string published, whole_name(name));
  return files_.tensor(published, shape, dtypes);
}

Result<std::string> NamedTensors::whole_name(const std::string& name) const {
  const PublishedTensor tensor = choose(name);
  if (tensor.is_whole() || !files_.has(tensor.name)) return tensor.name;
  return invalid_input(fmt::format("{}: expected a tensor of its own for {}, found a larger one",
                                   files_.where(tensor.name), base::printable(name)));
}

const TensorEntry* NamedTensors::find(const std::string& name) const {
  return files_.find(choose(name).name);
}

std::string NamedTensors::where(const std::string& name) const {
  const PublishedTensor tensor = choose(name);
  if (!files_.has(tensor.name)) return base::printable(tensor.name);
  const std::string file = files_.where(tensor.name);
  return tensor.expert ? fmt::format("{}, expert {}", file, *tensor.expert) : file;
}

std::string NamedTensors::published_name(const std::string& name) const {
  return choose(name).name;
}

std::string NamedTensors::own_name(const std::string& name) const {
  PublishedTensor chosen = choose(name);
  if (chosen.is_whole()) return std::move(chosen.name);
  std::vector<PublishedTensor> all = candidates(name);
  const auto own = std::find_if(all.begin(), all.end(),
                                [](const PublishedTensor& each) { return each.is_whole(); });
  return std::move(own->name);  // the canonical name is whole
}

}  // namespace wideep::weights
