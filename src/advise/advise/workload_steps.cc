// SPDX-License-Identifier: Apache-2.0
#include "advise/workload_steps.h"

#include <algorithm>

#include "kernels/kv_page.h"

namespace wideep::advise {

// Drafts are verified as tokens: keys and values are read once for all of a request.
model::StepShape generating(int batch, int drafts, const Workload& workload) {
  const int64_t context = workload.isl + workload.osl / 2;
  model::StepShape shape = model::decode_step(batch, context, 0);
  shape.num_tokens *= 1 + drafts;
  shape.num_logit_rows *= 1 + drafts;
  shape.attended *= 1 + drafts;
  return shape;
}

model::StepShape chunk_of(int64_t chunk, const Workload& workload, const ContextDeal& deal) {
  if (deal.num_ranks > 1) return busiest_chunk(chunk, workload.isl, deal);
  return {.num_tokens = chunk,
          .num_logit_rows = std::max<int64_t>(1, chunk / workload.isl),
          .attended = chunk * workload.isl / 2,
          .cached = workload.isl / 2,
          .num_cached = 1};
}

model::StepShape last_pages(int64_t count, const Workload& workload) {
  const int64_t isl = workload.isl;
  const int64_t tokens = isl <= kernels::kPageTokens ? isl : kernels::kPageTokens / 2;
  return {.num_tokens = count * tokens,
          .num_logit_rows = count,
          .attended = count * tokens * (isl - tokens / 2),
          .cached = count * (isl - tokens),
          .num_cached = isl > tokens ? count : 0};
}

}  // namespace wideep::advise
