// SPDX-License-Identifier: Apache-2.0
#include "cuda/dependent_launches.h"

#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/try.h"

namespace wideep::cuda {
namespace {

constexpr const char* kTheirs = "TRTLLM_ENABLE_PDL";
constexpr const char* kOurs = "WIDEEP_CUDA_DEPENDENT_LAUNCHES";

Result<std::optional<bool>> read(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::optional<bool>();
  if (value == std::string_view("0")) return std::optional(false);
  if (value == std::string_view("1")) return std::optional(true);
  return invalid_input(fmt::format("{}: expected 0 or 1, found {}", variable, value));
}

}  // namespace

Result<bool> dependent_launches() {
  WIDEEP_TRY_ASSIGN(const std::optional<bool> theirs, read(kTheirs));
  WIDEEP_TRY_ASSIGN(const std::optional<bool> ours, read(kOurs));
  if (theirs && ours && *theirs != *ours) {
    return invalid_input(fmt::format("{}={:d} contradicts {}={:d}: unset one of them", kTheirs,
                                     *theirs, kOurs, *ours));
  }
  return theirs.value_or(ours.value_or(true));
}

}  // namespace wideep::cuda
