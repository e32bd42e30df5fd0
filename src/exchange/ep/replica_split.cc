// SPDX-License-Identifier: Apache-2.0
//
// Greedy in three rounds: tokens that can stay on their rank, then on their node, then the rest in
// the order of ranks and replicas. Each round is one pass, and each rank computes only its own
// row: it goes through the ranks before itself and stops. The order is the same everywhere, so all
// rows together meet the quotas without any message. Credits are integers, because their sum must
// stay exactly 0 over any number of calls.
#include "ep/replica_split.h"

#include "base/check.h"
#include "base/plain_memory.h"

namespace wideep::ep {
namespace {

struct RankOf {
  const int32_t* replica_ranks;
  int operator()(int replica) const { return replica_ranks[replica]; }
};

base::PlainMemory plain;  // has no state

}  // namespace

void round_shares(int64_t total, std::span<const double> shares,
                  std::span<const int32_t> replica_ranks, std::span<double> rank_excess,
                  std::span<int64_t> quotas) {
  WIDEEP_CHECK(round_shares(plain, total, static_cast<int>(shares.size()), shares.data(),
                            RankOf{replica_ranks.data()}, rank_excess.data(), quotas.data()));
}

void round_with_credit(int64_t total, std::span<const int64_t> parts, std::span<int64_t> credit,
                       std::span<int64_t> quotas) {
  round_with_credit(plain, total, 0, static_cast<int>(parts.size()), parts.data(), credit.data(),
                    quotas.data());
}

void split_by_source(std::span<const int32_t> replica_ranks, const Source& source,
                     std::span<int64_t> counts, std::span<int64_t> quotas, std::span<int64_t> row) {
  const RankOf rank_of{replica_ranks.data()};
  using Row = SourceRow<base::PlainMemory, RankOf>;
  const Row::Problem problem{.rank = source.rank,
                             .ranks_per_node = source.ranks_per_node,
                             .num_ranks = static_cast<int>(counts.size()),
                             .num_replicas = static_cast<int>(quotas.size()),
                             .counts = counts.data(),
                             .quotas = quotas.data(),
                             .row = row.data()};
  Row(plain, rank_of, problem).split();
}

}  // namespace wideep::ep
