// SPDX-License-Identifier: Apache-2.0
#include "group/running_ranks.h"

namespace wideep::transport {

Status run_to_end(RunningRanks& ranks,
                  const std::function<void(int, std::string_view)>& on_message) {
  while (const auto event = ranks.next()) {
    if (const auto* message = std::get_if<RankMessage>(&*event)) {
      on_message(message->rank, message->bytes);
    }
  }
  return ranks.result();
}

}  // namespace wideep::transport
