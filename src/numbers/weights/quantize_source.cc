// SPDX-License-Identifier: Apache-2.0
//
// Tensor by tensor in the order of names, as quantize_checkpoint.cc, for sources whose tensors
// cannot be copied as bytes: what is not quantised is decoded to float32 and written in the dtype
// that the caller names. The caller brings the list of tensors, config.json and other files with
// it, because such a source has none of them in the form of a checkpoint.
#include "weights/quantize_source.h"

#include <algorithm>
#include <cstring>

#include "base/try.h"
#include "formats/files.h"
#include "weights/checkpoint_output.h"
#include "weights/matrix_quantizer.h"
#include "weights/quantized_tensors.h"
#include "weights/weight_loader.h"

namespace wideep::weights {
namespace {

// As choose_group() of quantize_checkpoint.cc: a config.json can state only one group for all.
int common_group(kernels::WeightFormat format, const std::vector<SourceTensor>& tensors) {
  int group = kernels::default_group(format);
  if (format != kernels::WeightFormat::kInt8 && format != kernels::WeightFormat::kInt4) {
    return group;
  }
  for (const SourceTensor& tensor : tensors) {
    while (tensor.quantizes && group > 32 && tensor.shape[1] % group != 0) group /= 2;
  }
  return group;
}

Result<NamedTensor> floats_of(const TensorSource& source, const SourceTensor& tensor) {
  const WeightLoader loader(source, {});
  WIDEEP_TRY_ASSIGN(const std::vector<float> values, loader.floats(tensor.asked, tensor.shape));
  NamedTensor copy{tensor.own, tensor.dtype, tensor.shape, {}};
  copy.bytes.resize(values.size() * dtype_bytes(tensor.dtype));
  std::byte* out = copy.bytes.data();
  for (const float value : values) {
    const Bf16 rounded(value);
    const bool whole = tensor.dtype == Dtype::kF32;
    std::memcpy(out, whole ? static_cast<const void*>(&value) : &rounded,
                dtype_bytes(tensor.dtype));
    out += dtype_bytes(tensor.dtype);
  }
  return copy;
}

class Writer {
 public:
  Writer(const TensorSource& source, const QuantizeSourceOptions& options, base::ThreadPool& pool)
      : source_(source),
        options_(options),
        pool_(pool),
        writer_(options.output_dir, options.shard_bytes) {}

  Result<QuantizeReport> write(std::vector<SourceTensor> tensors,
                               const std::function<void(int64_t, int64_t)>& progress) {
    std::ranges::sort(tensors, {}, &SourceTensor::own);
    report_.bytes_before = options_.bytes_before;
    report_.group = common_group(options_.format, tensors);
    int64_t done = 0;
    for (const SourceTensor& tensor : tensors) {
      const bool fits = tensor.quantizes && fits_layout(options_.format, report_.group,
                                                        static_cast<int>(tensor.shape[1]));
      if (tensor.quantizes && !fits) report_.unfit.push_back(tensor.own);
      WIDEEP_TRY(fits ? quantize(tensor) : copy(tensor));
      progress(++done, static_cast<int64_t>(tensors.size()));
    }
    WIDEEP_TRY(source_.check_unchanged());
    WIDEEP_TRY(writer_.finish());
    report_.bytes_after = writer_.total_bytes();
    for (const auto& [name, content] : options_.files) {
      WIDEEP_TRY(formats::write_file(options_.output_dir + "/" + name, content));
    }
    // config.json comes last: without it a directory of an interrupted run is no model.
    WIDEEP_TRY(write_config(options_.output_dir, options_.format, options_.config, report_.group,
                            ignored_));
    return std::move(report_);
  }

 private:
  Status copy(const SourceTensor& tensor) {
    WIDEEP_TRY_ASSIGN(NamedTensor floats, floats_of(source_, tensor));
    if (tensor.shape.size() == 2) ignored_.push_back(module_of(tensor.own));
    return writer_.add(std::move(floats));
  }

  Status quantize(const SourceTensor& tensor) {
    WIDEEP_TRY_ASSIGN(const StoredMatrix stored,
                      StoredMatrix::open(source_, tensor.asked, static_cast<int>(tensor.shape[0]),
                                         static_cast<int>(tensor.shape[1])));
    WIDEEP_TRY_ASSIGN(const Quantized quantized,
                      MatrixQuantizer(stored, options_.format, report_.group).run(pool_));
    report_.tensors.push_back({tensor.own, quantized.signal_to_noise_db});
    for (NamedTensor& each : quantized_tensors(module_of(tensor.own), quantized.matrix)) {
      WIDEEP_TRY(writer_.add(std::move(each)));
    }
    return {};
  }

  const TensorSource& source_;
  const QuantizeSourceOptions& options_;
  base::ThreadPool& pool_;
  ShardWriter writer_;
  QuantizeReport report_;
  std::vector<std::string> ignored_;
};

}  // namespace

Result<QuantizeReport> quantize_source(
    const TensorSource& source, const std::vector<SourceTensor>& tensors,
    const QuantizeSourceOptions& options, base::ThreadPool& pool,
    const std::function<void(int64_t done, int64_t all)>& progress) {
  WIDEEP_TRY_ASSIGN(const auto made, make_output(options.output_dir));
  auto report = Writer(source, options, pool).write(tensors, progress);
  if (!report.ok()) return without_files(report.status(), options.output_dir);
  return report;
}

}  // namespace wideep::weights
