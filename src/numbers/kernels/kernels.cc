// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.h"

#include <fmt/format.h>

#include "kernels/tables.h"

namespace wideep::kernels {

namespace {

constexpr Kernels kRef = {
    .isa = "ref",
    .description = "plain C++ loops",
    .supported = [] { return true; },
#define WIDEEP_KERNEL(result, name, parameters) .name = ref::name,
#include "kernels/kernel_list.inc"
};
#if defined(__x86_64__)
constexpr Kernels kAvx2 = {
    .isa = "avx2",
    .description = "AVX2 with FMA",
    .supported =
        [] {
          return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                 __builtin_cpu_supports("f16c");
        },
#define WIDEEP_KERNEL(result, name, parameters) .name = avx2::name,
#include "kernels/kernel_list.inc"
};
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
#define WIDEEP_KERNEL(result, name, parameters) .name = avx512::name,
#include "kernels/kernel_list.inc"
};
#endif

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
