// SPDX-License-Identifier: Apache-2.0
#include "kernels/kernels.h"

#include <fmt/format.h>

#include "kernels/tables.h"

namespace wideep::kernels {

const std::vector<const Kernels*>& all_kernels() {
  static const std::vector<const Kernels*> tables = {
#if defined(__x86_64__)
      avx512_kernels(), avx2_kernels(),
#endif
      ref_kernels()};
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
