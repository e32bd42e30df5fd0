// SPDX-License-Identifier: Apache-2.0
//
// Declares the kernels of each instruction set. Only kernels.cc makes tables of them (kernels.h
// documents each kernel).
#pragma once

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/delta_rule.h"
#include "kernels/indexer.h"
#include "kernels/matmul.h"
#include "kernels/quantized_rows.h"
#include "kernels/reduce.h"
#include "kernels/row_format.h"

// clang-format off
#define WIDEEP_DECLARE_KERNELS(isa)                                                                \
  namespace isa {                                                                                  \
  void matmul(const MatmulArgs& args);                                                             \
  void gated_matmul(const GatedMatmulArgs& args);                                                  \
  void quantize_row(Dtype x_dtype, const void* x, const QuantizedRowShape& shape, std::byte* out); \
  void attention(const AttentionArgs& args);                                                       \
  void store_key(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);                \
  void store_value(Dtype dtype, const float* x, int dim, int slot, std::byte* panel);              \
  void store_row(Dtype dtype, const float* x, int dim, std::byte* row);                            \
  void pack_keys(const PageRows& page, std::byte* panel);                                          \
  void pack_values(const PageRows& page, std::byte* panel);                                        \
  void widen_fp8(const std::byte* fp8, size_t count, Bf16* out);                                   \
  void index_scores(const IndexArgs& args);                                                        \
  void delta_rule(const DeltaRuleArgs& args);                                                      \
  void convolve(const ConvolutionArgs& args);                                                      \
  void rms_norm(const float* x, const float* weight, float eps, int n, float* y);                  \
  void l2_normalize(const float* x, float eps, int n, float* y);                                   \
  void silu(const float* x, int n, float* y);                                                      \
  void silu_multiply(const float* gate, const float* x, int n, float* y);                          \
  void sigmoid_multiply(const float* gate, const float* x, int n, float* y);                       \
  void scale_row(float scale, int n, float* x);                                                    \
  void rotate(const float* cos_sin, int dim, bool interleaved, float* x);                          \
  void encode_row(Dtype x_dtype, const void* x, RowFormat format, int hidden, std::byte* row);      \
  void decode_row(RowFormat format, const std::byte* row, int hidden, Dtype y_dtype, void* y);      \
  void reduce_experts(const ReduceArgs& args);                                                     \
  void add_scaled(Dtype x_dtype, const void* x, float scale, int n, float* y);                     \
  int argmax(const float* x, int n);                                                               \
  double sum_of_exp(const float* x, float largest, int n);                                         \
  float int4_error(const float* x, int n, float scale, float inverse);                             \
  void to_bf16(const float* x, int n, Bf16* y);                                                    \
  void interleave_rows(const std::byte* rows, size_t row_bytes, int num_words, std::byte* out,     \
                       const std::byte* next);                                                     \
  }
// clang-format on

namespace wideep::kernels {

WIDEEP_DECLARE_KERNELS(ref)
#if defined(__x86_64__)
WIDEEP_DECLARE_KERNELS(avx2)
WIDEEP_DECLARE_KERNELS(avx512)
#endif

}  // namespace wideep::kernels

#undef WIDEEP_DECLARE_KERNELS
