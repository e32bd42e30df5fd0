// SPDX-License-Identifier: Apache-2.0
#include "server/transfer_log.h"

#include <fmt/format.h>

#include "base/printable.h"
#include "store/page_peer.h"

namespace wideep::server {

std::string TransferLog::line_of(const run::PromptTransfer& transfer, std::string_view peer,
                                 double now) {
  const std::string& why = transfer.from_peer.trouble;
  if (why.empty()) return "";
  const auto from = store::parse_page_peer(peer);
  if (!from.ok()) return "";
  std::erase_if(told_, [&](const auto& each) { return now - each.second >= kPauseSeconds; });
  const std::string host = from->host.text();
  if (told_.size() >= kMaxPeers || !told_.emplace(host, now).second) return "";
  return fmt::format(
      "the prompt of a request did not come from {}, or not all of it: {}; the rest "
      "is computed here (at most a line each minute)",
      host, base::printable(why, 200));
}

}  // namespace wideep::server
