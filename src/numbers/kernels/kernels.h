// SPDX-License-Identifier: Apache-2.0
//
// One table of kernels per instruction set, and the choice between them.
//
// Row invariance: the result for a row depends on that row and the weights only. No kernel locks or
// logs. Products keep one buffer per thread for the rows of x, which grows to the largest product;
// no kernel allocates anything else.
//
// Thread safety: any thread, on disjoint outputs.
//
//   WIDEEP_TRY_ASSIGN(const Kernels* kernels, select_kernels(std::getenv("WIDEEP_ISA")));
//   kernels->rms_norm(x, weight, eps, hidden, y);
#pragma once

#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "kernels/attention.h"
#include "kernels/convolution.h"
#include "kernels/delta_rule.h"
#include "kernels/indexer.h"
#include "kernels/layer_norm.h"
#include "kernels/matmul.h"
#include "kernels/quantized_rows.h"
#include "kernels/reduce.h"
#include "kernels/row_format.h"
#include "kernels/state_space.h"
#include "wideep/status.h"

namespace wideep::kernels {

struct Kernels {
  std::string_view isa;          // "avx512", "avx2", "ref"
  std::string_view description;  // for logs
  bool (*supported)();           // whether this processor can run it

  // kernel_list.inc says what each does.
#define WIDEEP_KERNEL(result, name, parameters) result(*name) parameters;
#include "kernels/kernel_list.inc"
};

// All compiled tables, best first; "ref" is last and runs on every processor.
const std::vector<const Kernels*>& all_kernels();

// The table named `isa`, or the best one this processor supports when isa is null or empty.
// Errors (invalid input): no such table, or this processor cannot run it; the message lists the
// choices.
Result<const Kernels*> select_kernels(const char* isa);

}  // namespace wideep::kernels
