// SPDX-License-Identifier: Apache-2.0
#include "measure/ep/ep_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/byte_size.h"
#include "base/machine.h"
#include "base/try.h"

namespace wideep::measure {
namespace {

// Checks the memory that rows, messages and results of all ranks need; only touched pages count.
Status check_memory(const EpBenchOptions& options, const base::Machine& machine) {
  const uint64_t tokens = *std::max_element(options.tokens.begin(), options.tokens.end());
  const uint64_t row = static_cast<uint64_t>(options.hidden) * sizeof(Bf16);
  // In units of bf16 rows per token: 1 row in, 2 for its float32 sum; at most top_k messages, top_k
  // results, and top_k results before they are coded. MPI needs the same once more, and copies of
  // it.
  const uint64_t per_entry = options.makes_results ? 3 : 2;
  const uint64_t rows = 3 + per_entry * static_cast<uint64_t>(options.group.top_k);
  const uint64_t needed = static_cast<uint64_t>(options.group.num_ranks) * tokens * row * rows *
                          (options.with_mpi ? 3 : 1);
  const uint64_t found = machine.usable_memory_bytes();
  if (needed <= found) return {};
  return invalid_input(fmt::format(
      "--tokens: {} tokens on each of {} ranks need {} of memory, expected at most {}; give fewer",
      tokens, options.group.num_ranks, base::byte_size(needed), base::byte_size(found)));
}

Status check_forms(const EpBenchOptions& options) {
  bool any_bf16 = false;
  for (const EpForm& form : options.forms) {
    WIDEEP_TRY(kernels::check_row_format(form.rows, options.hidden).at("--dtype"));
    WIDEEP_TRY(kernels::check_row_format(form.results, options.hidden).at("--combine-dtype"));
    any_bf16 = any_bf16 || form.is_bf16();
  }
  if (any_bf16 || !options.with_mpi) return {};
  return invalid_input(
      fmt::format("--baseline mpi: MPI's rounds send bf16 rows only, so expected --dtype and "
                  "--combine-dtype bf16 as one of the values, found {} and {}",
                  kernels::row_format_name(options.forms[0].rows),
                  kernels::row_format_name(options.forms[0].results)));
}

}  // namespace

std::vector<EpTest> EpBenchOptions::tests() const {
  std::vector<EpTest> all = {{.tokens = 0, .combine = combines[0], .form = forms[0]}};
  for (const int num_tokens : tokens) {
    for (const ep::Combine combine : combines) {
      for (const EpForm& form : forms) all.push_back({num_tokens, combine, form});
    }
  }
  return all;
}

Status check_options(const EpBenchOptions& options) {
  const EpGroup& group = options.group;
  if (group.num_experts % group.num_ranks != 0) {
    return invalid_input(fmt::format(
        "--experts: expected a multiple of the {} ranks, found {}: every rank holds equally many",
        group.num_ranks, group.num_experts));
  }
  if (group.top_k > group.num_experts) {
    return invalid_input(fmt::format("--top-k: expected at most the {} experts, found {}",
                                     group.num_experts, group.top_k));
  }
  if (options.with_mpi && options.makes_results) {
    return invalid_input(
        "--results made and --baseline mpi: MPI's rounds write no results; leave one of them out");
  }
  WIDEEP_TRY(check_forms(options));
  return check_memory(options, base::read_machine());
}

}  // namespace wideep::measure
