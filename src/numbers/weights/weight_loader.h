// SPDX-License-Identifier: Apache-2.0
//
// Loads the tensors of a checkpoint in the forms that the kernels use: packed matrices (all in one
// format or each as stored), rows, float32 vectors.
//
// Each call checks its tensor at once, so that the first error in the order of the calls is
// reported. Large tensors are then loaded together by all threads in run(), directly into their
// final memory. After an error the loader must not be used any more.
//
// What was packed before (packed/packed_file.h) is copied from there, and compared with its hash.
// What is not there is read from the checkpoint.
//
//   WeightLoader loader(checkpoint, format, progress, &pool);
//   WIDEEP_TRY_ASSIGN(Matrix down, loader.matrix("down.weight", n, k));
//   loader.run();                                       // now `down` is loaded
//
// Thread safety: one thread; the progress callback is called from any thread, one at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/thread_pool.h"
#include "kernels/packed_matrix.h"
#include "packed/packed_file.h"
#include "weights/load_queue.h"
#include "weights/stored_matrix.h"
#include "wideep/status.h"

namespace wideep::weights {

// A packed matrix that owns its memory.
struct Matrix {
  base::AlignedBytes bytes;
  kernels::PackedMatrix packed;
};

class WeightLoader {
 public:
  // format: the format of all packed matrices; nothing: each as stored, and floats in bf16.
  // progress: called with the number of bytes read from tensors. pool: threads for run(); null: the
  // caller only.
  WeightLoader(
      const TensorSource& tensors, std::optional<kernels::WeightFormat> format,
      std::function<void(uint64_t)> progress = [](uint64_t) {}, base::ThreadPool* pool = nullptr)
      : tensors_(tensors), format_(format), progress_(std::move(progress)), pool_(pool) {}

  // Both before anything is loaded.
  // file: takes parts from there; outlives the loader.
  void take_from(const packed::PackedFile& file) { packed_ = &file; }
  // tell: called by floats(), and by run() for all that it has loaded, with what a packed file needs
  // to have for take_from(). Not for pack(). Errors: become those of the call.
  using Tell =
      std::function<Status(const std::string& part, std::span<const std::byte> bytes, float scale)>;
  void tell_parts(Tell tell) { tell_ = std::move(tell); }

  // The dtype of activation rows, and by default of the KV cache, that goes with these weights.
  Dtype row_dtype() const {
    return kernels::row_dtype(format_.value_or(kernels::WeightFormat::kBf16));
  }

  // The form in which this matrix with k columns is packed.
  MatrixForm form(const std::string& name, int k) const;
  // One form for several matrices: their common format with the smallest of their groups. If
  // formats differ or groups do not divide each other, it is the loader's format, or bf16 without
  // one.
  struct NameAndWidth {
    std::string name;
    int k;
  };
  // In a source with row_sources(), and without a format: RowSources::form_of.
  MatrixForm common_form(const std::vector<NameAndWidth>& matrices) const;

  // Whether the down matrices of experts get a form of their own: GGUF files often have more bits
  // there.
  bool packs_down_apart() const { return tensors_.row_sources() != nullptr && !format_; }

  // All elements of a tensor as float32, row-major; codes are dequantised. Loaded at once by the
  // calling thread: for small tensors.
  Result<std::vector<float>> floats(const std::string& name,
                                    const std::vector<int64_t>& shape) const;

  // All elements of a tensor of integers from 0 to end − 1, I64 or I32. Loaded at once.
  Result<std::vector<int32_t>> integers(const std::string& name, const std::vector<int64_t>& shape,
                                        int64_t end) const;

  // ---- loaded by run(): until then the destination must stay valid ----

  // A tensor of shape [n, k], row-major, as float32 or bf16.
  // REQUIRES: dtype is kF32 or kBf16; out holds n · k elements of it.
  Status rows(const std::string& name, int n, int k, Dtype dtype, std::byte* out) const;

  // Packs a tensor of shape [shape.n, shape.k] into the caller's memory. Returns the scale of the
  // whole matrix. REQUIRES: out is 64-byte aligned and shape.bytes() long.
  Result<float> pack(const std::string& name, const kernels::PackedShape& shape,
                     std::byte* out) const {
    return pack(name, shape, {0, shape.num_panels()}, out);
  }
  // The same for some panels, which get the same bits as in the whole matrix. out: memory of the
  // first of these panels.
  Result<float> pack(const std::string& name, const kernels::PackedShape& shape,
                     const kernels::PanelRange& panels, std::byte* out) const;

  // Packs a tensor of shape [n, k] into its own memory, in form(name, k) or in the given form.
  Result<Matrix> matrix(const std::string& name, int n, int k) const {
    return matrix(name, n, k, form(name, k));
  }
  Result<Matrix> matrix(const std::string& name, int n, int k, const MatrixForm& form) const;

  // Copies a part of the packed file. False: there is no file, or no such part of so many bytes.
  bool take(const std::string& part, std::span<std::byte> out) const;
  // Of a caller that has asked for several things which are one part: for tell_parts().
  void tell(const std::string& part, std::span<const std::byte> bytes) const;

  // Before run(), which then waits less for the disk.
  void read_ahead() const { queue_->read_ahead(); }
  // Loads everything that was asked for. Errors: as StoredMatrix::pack; a part of the packed file
  // differs from its hash.
  Status run() const;
  // As TensorSource: whether what was loaded is of the files that were opened.
  Status check_unchanged() const { return tensors_.check_unchanged(); }

  // Packs the caller's float32 rows [n, k] at once.
  static Matrix pack_rows(kernels::WeightFormat format, const float* rows, int n, int k);

 private:
  // A part that run() tells of.
  struct Loaded {
    std::string part;
    std::span<const std::byte> bytes;
    float scale = 1.0f;
  };

  Result<std::vector<float>> stored_floats(const std::string& name,
                                           const std::vector<int64_t>& shape) const;
  // The values of a part of the packed file; none if it has no such part. Errors (failed): its size
  // is not that of the shape.
  template <typename T>
  Status take_values(const std::string& part, std::span<const int64_t> shape,
                     std::vector<T>& values) const;
  // rows() of a source that has row_sources().
  Status decoded_rows(const std::string& name, int n, int k, Dtype dtype, std::byte* out) const;

  const TensorSource& tensors_;
  std::optional<kernels::WeightFormat> format_;
  std::function<void(uint64_t)> progress_;
  base::ThreadPool* pool_;
  const packed::PackedFile* packed_ = nullptr;
  Tell tell_;
  std::unique_ptr<LoadQueue> queue_ = std::make_unique<LoadQueue>();
  std::unique_ptr<std::vector<Loaded>> loaded_ = std::make_unique<std::vector<Loaded>>();
};

}  // namespace wideep::weights
