// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.h"

#include <fmt/format.h>

#include "kernels/tables.h"

namespace wideep::kernels {

namespace {

#define WIDEEP_KERNELS_OF(isa)                                                                   \
  .matmul = isa::matmul, .gated_matmul = isa::gated_matmul, .quantize_row = isa::quantize_row,   \
  .attention = isa::attention, .store_key = isa::store_key, .store_value = isa::store_value,     \
  .store_row = isa::store_row, .pack_keys = isa::pack_keys, .pack_values = isa::pack_values,     \
  .widen_fp8 = isa::widen_fp8, .index_scores = isa::index_scores, .delta_rule = isa::delta_rule, \
  .convolve = isa::convolve, .rms_norm = isa::rms_norm, .l2_normalize = isa::l2_normalize,       \
  .silu = isa::silu, .silu_multiply = isa::silu_multiply,                                        \
  .sigmoid_multiply = isa::sigmoid_multiply, .scale_row = isa::scale_row, .rotate = isa::rotate, \
  .encode_row = isa::encode_row, .decode_row = isa::decode_row,                                  \
  .reduce_experts = isa::reduce_experts, .add_scaled = isa::add_scaled, .argmax = isa::argmax,   \
  .sum_of_exp = isa::sum_of_exp, .int4_error = isa::int4_error, .to_bf16 = isa::to_bf16,         \
  .interleave_rows = isa::interleave_rows

constexpr Kernels kRef = {.isa = "ref",
                          .description = "plain C++ loops",
                          .supported = [] { return true; },
                          WIDEEP_KERNELS_OF(ref)};
#if defined(__x86_64__)
constexpr Kernels kAvx2 = {.isa = "avx2",
                           .description = "AVX2 with FMA",
                           .supported =
                               [] {
                                 return __builtin_cpu_supports("avx2") &&
                                        __builtin_cpu_supports("fma") &&
                                        __builtin_cpu_supports("f16c");
                               },
                           WIDEEP_KERNELS_OF(avx2)};
constexpr Kernels kAvx512 = {
    .isa = "avx512",
    .description = "AVX-512 with BF16 and VNNI",
    .supported =
        [] {
          return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                 __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni") &&
                 __builtin_cpu_supports("avx512vbmi");
        },
    WIDEEP_KERNELS_OF(avx512)};
#endif
#undef WIDEEP_KERNELS_OF

}  // namespace

const std::vector<const Kernels*>& all_kernels() {
  static const std::vector<const Kernels*> tables = {
#if defined(__x86_64__)
      &kAvx512, &kAvx2,
#endif
      &kRef};
  return tables;
}

Result<const Kernels*> select_kernels(const char* isa) {
  const std::string_view wanted = isa == nullptr ? "" : isa;
  std::string choices;
  for (const Kernels* table : all_kernels()) {
    const bool supported = table->supported();
    if (supported && (wanted.empty() || wanted == table->isa)) return table;
    if (supported) choices += fmt::format("{}{}", choices.empty() ? "" : ", ", table->isa);
  }
  return invalid_input(
      fmt::format("WIDEEP_ISA={}: not an instruction set this processor can run; choose one of: {}",
                  wanted, choices));
}

}  // namespace wideep::kernels
