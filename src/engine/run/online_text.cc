// SPDX-License-Identifier: Apache-2.0
#include "run/online_text.h"

#include <fmt/format.h>

namespace wideep::run {
namespace {

std::string many(int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string copies(int64_t count) {
  return fmt::format("{} {}", count, count == 1 ? "copy" : "copies");
}

std::string duration(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.1f} ms", seconds * 1e3) : fmt::format("{:.2f} s", seconds);
}

}  // namespace

std::string text_of(const online::LedgerSums& sums) {
  std::string text = "saved " + duration(sums.saved_seconds);
  if (sums.lost_seconds > 0.0) text += ", lost " + duration(sums.lost_seconds);
  return text + ", paid " + duration(sums.paid_seconds);
}

std::string line_of(const online::Rebalance& each) {
  const std::string cancelled =
      each.cancelled == 0 ? "" : fmt::format(", {} cancelled", each.cancelled);
  std::string line = fmt::format(
      "rebalance before iteration {}: {}{}, {} moved ({:.1f} MiB), imbalance {:.3f} -> {:.3f}, "
      "copied in {:.1f} ms, in service after {:.1f} ms",
      each.iteration, many(each.layers, "layer"), cancelled, many(each.moves, "expert"),
      static_cast<double>(each.bytes) / (1 << 20), each.imbalance_before, each.imbalance_after,
      each.copy_seconds * 1e3, each.seconds * 1e3);
  if (each.lent_copies > 0) {
    line += fmt::format(", {} late: made with normal priority", copies(each.lent_copies));
  }
  if (each.refused_loans > 0) {
    line +=
        ", copies late: the system does not let a thread raise its priority again (it takes "
        "CAP_SYS_NICE, or `ulimit -e 20`)";
  }
  if (each.expected_seconds > 0.0) {
    line += fmt::format(", to save {}; all moves have {}", duration(each.expected_seconds),
                        text_of(each.ledger));
  }
  return line;
}

std::string line_of(const online::TrustChange& change) {
  const online::MoveLedger::Verdict& verdict = change.verdict;
  if (!verdict.rests) {
    return fmt::format("online balancing tries again, from iteration {}", change.iteration);
  }
  return fmt::format(
      "online balancing rests for {} tokens, from iteration {}: the last {} have not paid for "
      "themselves ({})",
      verdict.rest_tokens, change.iteration, many(verdict.sums.moves, "move"),
      text_of(verdict.sums));
}

std::string line_of(const BackgroundSilence& silence, size_t num_stages) {
  const std::string of_stage =
      num_stages > 1 ? fmt::format(" of stage {}", silence.stage) : std::string();
  const std::string thread =
      silence.rank < 0 ? "the balancer's thread" + of_stage
                       : fmt::format("the copying thread of rank {}{}", silence.rank, of_stage);
  if (silence.is_over) {
    return fmt::format("online balancing: {} runs again, after {:.0f} s", thread, silence.seconds);
  }
  return fmt::format(
      "online balancing: {} has not run for {:.0f} s: experts stay where they are, serving goes "
      "on; "
      "if it does not run again, restart the ranks",
      thread, silence.seconds);
}

}  // namespace wideep::run
