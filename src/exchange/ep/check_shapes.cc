// SPDX-License-Identifier: Apache-2.0
#include "ep/check_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/try.h"

namespace wideep::ep {

using transport::AgreedWords;

Status check_shapes_match(const DispatchShape& shape, transport::Endpoint& endpoint) {
  const auto fields = shape.fields();
  std::vector<AgreedWords> of_ranks;
  // One all-gather carries 8 words, so the fields take several. All ranks see the same words, so
  // all return at the same field, and none waits for an all-gather that the others do not begin.
  for (size_t first = 0; first < fields.size(); first += AgreedWords().size()) {
    const size_t count = std::min(AgreedWords().size(), fields.size() - first);
    AgreedWords mine = {};
    for (size_t i = 0; i < count; ++i) mine[i] = fields[first + i].value;
    WIDEEP_TRY(endpoint.agree(mine, {.what = "the shape of dispatch"}, &of_ranks));
    for (size_t i = 0; i < count; ++i) {
      for (size_t rank = 1; rank < of_ranks.size(); ++rank) {
        if (of_ranks[rank][i] == of_ranks[0][i]) continue;
        return invalid_input(fmt::format(
            "dispatch: {} is {} on rank 0 and {} on rank {}; it must be the same on all ranks",
            fields[first + i].name, of_ranks[0][i], of_ranks[rank][i], rank));
      }
    }
  }
  return {};
}

}  // namespace wideep::ep
