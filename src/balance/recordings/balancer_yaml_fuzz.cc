// SPDX-License-Identifier: Apache-2.0
// Any bytes as moe_load_balancer.yaml: a valid placement or one line of complaint.
#include <string>

#include "base/check.h"
#include "recordings/balancer_yaml.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace wideep::recordings;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const MoeShape shape{.moe_layers = {1, 2}, .num_experts = 4, .ep_size = 2};
  const auto model = parse_balancer_yaml(text, "fuzz", shape);
  if (!model.ok()) {
    WIDEEP_CHECK(model.status().message().find('\n') == std::string::npos);
    return 0;
  }
  WIDEEP_CHECK_EQ(model->layers.size(), shape.moe_layers.size());
  for (const auto& [layer, placement] : model->layers) {
    WIDEEP_CHECK(check_placement(placement).ok());
    WIDEEP_CHECK_EQ(make_routing_table(placement).slot_ids.size(),
                    static_cast<size_t>(model->num_slots));
  }
  const auto again = parse_balancer_yaml(balancer_yaml_text(*model), "again", shape);
  WIDEEP_CHECK(again.ok() && *again == *model);
  return 0;
}
