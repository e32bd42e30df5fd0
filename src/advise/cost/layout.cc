// SPDX-License-Identifier: Apache-2.0
#include "cost/layout.h"

#include <fmt/format.h>

namespace wideep::cost {

namespace {

// Which of the ranks that compute a layer share it.
std::string ranks_text(const Layout& layout) {
  const bool is_dense = layout.num_slots == 0;
  if (is_dense && layout.tensor_ranks() == 1) return "1 rank";
  if (is_dense)
    return fmt::format("{} {}", layout.attention_dp ? "DP" : "TP", layout.tensor_ranks());
  std::string text = fmt::format("EP {}", layout.ep);
  if (layout.expert_slices > 1) text += fmt::format(" × {} slices", layout.expert_slices);
  return text;
}

}  // namespace

std::string text_of(const Layout& layout) {
  std::string text = ranks_text(layout);
  if (layout.stages > 1) text += fmt::format(", {} stages", layout.stages);
  if (layout.context > 1) text += fmt::format(", CP {}", layout.context);
  if (layout.num_slots > 0) {
    text += fmt::format(", attention {}, {} slots{}", layout.attention_dp ? "DP" : "TP",
                        layout.num_slots, layout.online ? " (online)" : "");
  }
  text += fmt::format(", {}", kernels::weight_format_name(layout.format));
  if (layout.drafts > 0) {
    text += fmt::format(", {} draft{}", layout.drafts, layout.drafts == 1 ? "" : "s");
  }
  return text;
}

}  // namespace wideep::cost
