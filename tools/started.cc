// SPDX-License-Identifier: Apache-2.0
#include "started.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace wideep::tools {

Started Started::find(const std::vector<std::string>& command,
                      const std::optional<transport::Launch>& launch) {
  Started started;
  const bool runs_ranks =
      !command.empty() && (command.front() == "generate" || command.front() == "serve");
  // With --nnodes a launcher has started one process for each node: no ranks.
  const bool starts_nodes = std::ranges::any_of(
      command, [](const std::string& each) { return each.starts_with("--nnodes"); });
  if (!launch || !runs_ranks || starts_nodes) return started;
  // Set before the ranks are connected: if connecting fails, only one process must log the error.
  started.prints_ = launch->rank == 0;
  Result<std::unique_ptr<transport::StartedRanks>> ranks = transport::start_mpi_ranks(*launch);
  started.status_ = ranks.status();
  if (ranks.ok()) {
    started.ranks_ = std::move(*ranks);
    started.prints_ = started.ranks_->rank() == 0;
  }
  return started;
}

Status Started::agree_on(const Status& mine) const {
  constexpr std::chrono::seconds kStartTimeout{60};
  return ranks_ == nullptr ? mine : ranks_->agree_on(mine, {}, kStartTimeout);
}

void Started::end(const Status& status) {
  const bool logs_for_node = ranks_ != nullptr && ranks_->is_broken() && ranks_->is_first_of_node();
  if (!status.ok() && (prints_ || logs_for_node)) log::error("{}", status.message());
  transport::end_mpi_ranks(std::move(ranks_), status.exit_code());
}

}  // namespace wideep::tools
