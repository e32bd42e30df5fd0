// SPDX-License-Identifier: Apache-2.0
#include "online/layer_rota.h"

namespace wideep::online {

LayerRota::LayerRota(int num_layers, int layers_per_turn, bool rests)
    : num_layers_(num_layers),
      num_groups_((num_layers + layers_per_turn - 1) / layers_per_turn),
      // Group sizes differ by at most one layer, so first and last are equal if all are.
      num_turns_(num_groups_ + (rests && num_layers % num_groups_ == 0 ? 1 : 0)) {}

}  // namespace wideep::online
