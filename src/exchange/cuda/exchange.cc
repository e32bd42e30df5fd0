// SPDX-License-Identifier: Apache-2.0
#include "cuda/exchange.h"

#include <fmt/format.h>

namespace wideep::cuda {
namespace {

const char* awaited(int32_t channel) {
  switch (static_cast<Channel>(channel)) {
    case Channel::kPrepare:
      return "token counts";
    case Channel::kDispatch:
      return "dispatched rows";
    case Channel::kCombine:
      return "expert results";
  }
  return "nothing";
}

}  // namespace

Status failure_status(int rank, const Failure& failure) {
  const std::string where =
      fmt::format("rank {}, layer {}, call {}", rank, failure.layer, failure.call);
  switch (failure.code) {
    case FailureCode::kNone:
      return {};
    case FailureCode::kDeadline:
      return deadline_exceeded(fmt::format("{}: no {} from rank {} within the deadline", where,
                                           awaited(failure.channel), failure.peer));
    case FailureCode::kPeerFailed:
      return failed(fmt::format("{}: rank {} failed first, while its {} were awaited", where,
                                failure.peer, awaited(failure.channel)));
    case FailureCode::kTooManyTokens:
      return invalid_input(
          fmt::format("{}: {} tokens, more than the buffers have room for", where, failure.token));
    case FailureCode::kBadSlot:
      return invalid_input(fmt::format(
          "{}: token {}: a slot that does not exist, or twice the same", where, failure.token));
    case FailureCode::kInactiveRank:
      return invalid_input(fmt::format("{}: token {}: a slot of rank {}, which is not active",
                                       where, failure.token, failure.peer));
  }
  return failed(fmt::format("{}: unknown failure {}", where, static_cast<int>(failure.code)));
}

}  // namespace wideep::cuda
