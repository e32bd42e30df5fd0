// SPDX-License-Identifier: Apache-2.0
#include "cost/layout.h"

#include <fmt/format.h>

namespace wideep::cost {

std::string text_of(const Layout& layout) {
  std::string text = fmt::format("EP {}", layout.ep);
  if (layout.expert_slices > 1) text += fmt::format(" × {} slices", layout.expert_slices);
  if (layout.stages > 1) text += fmt::format(", {} stages", layout.stages);
  if (layout.context > 1) text += fmt::format(", CP {}", layout.context);
  text += layout.attention_dp ? ", attention DP" : ", attention TP";
  text += fmt::format(", {} slots{}, {}", layout.num_slots, layout.online ? " (online)" : "",
                      kernels::weight_format_name(layout.format));
  if (layout.drafts > 0) {
    text += fmt::format(", {} draft{}", layout.drafts, layout.drafts == 1 ? "" : "s");
  }
  return text;
}

}  // namespace wideep::cost
