// SPDX-License-Identifier: Apache-2.0
//
// Dispatch and combine as usually written with MPI: counts by Alltoall, packed rows by Alltoallv,
// results back by Alltoallv, and the same weighted sum as in wideep. `wideep bench ep --baseline
// mpi` starts this program and writes one line to its standard input for each block of rounds:
//
//   <tokens> <rows to send: MpiRows> <microseconds>
//
// Between blocks its ranks sleep, so that they do not disturb what is measured then.
#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "base/aligned_bytes.h"
#include "base/cpu_time.h"
#include "kernels/kernels.h"
#include "measure/ep/mpi_baseline.h"

namespace {

using namespace wideep;
using measure::EpGroup;
using measure::EpSum;
using measure::EpSums;
using measure::MpiRows;

constexpr int kMaxRounds = 2048;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "error: wideep_mpi_baseline: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

int number_of(std::string_view text) {
  int number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc()) {
    give_up("expected a number");
  }
  return number;
}

// Number of rows to or from every rank, and where each rank's rows start in the buffer.
struct Shares {
  explicit Shares(int num_ranks) : counts(num_ranks), starts(num_ranks) {}
  std::vector<int> counts, starts;
  int sum_up() {
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), 0);
    return starts.back() + counts.back();
  }
};

// The rounds of one rank, for one number of tokens and one kind of rows.
class Rounds {
 public:
  Rounds(const EpGroup& group, int rank, int hidden, int num_tokens, MpiRows rows, EpSum sum,
         const kernels::Kernels& kernels);
  ~Rounds() {
    MPI_Type_free(&message_type_);
    MPI_Type_free(&result_type_);
  }
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  void round();
  void check();

 private:
  void fill(int rank);
  void count_rows();
  void pack();
  void count_results();
  void reduce();
  template <typename Visit>
  void for_each_row(Visit visit);
  bool one_row_per_rank() const { return rows_ != MpiRows::kPerExpert; }

  EpGroup group_;
  int hidden_, num_tokens_;
  MpiRows rows_;
  EpSums sums_;
  std::vector<int32_t> experts_;
  std::vector<float> weights_, ones_;
  size_t row_bytes_, message_bytes_;  // a message: the row, then the experts of it that are meant
  MPI_Datatype message_type_{}, result_type_{};
  base::AlignedBytes input_, send_, receive_, results_, returned_;
  Shares to_, from_, results_to_, results_from_;
  std::vector<int> fill_, last_token_;
  std::vector<const std::byte*> pulled_;  // results of the tokens, in top-k order
  std::vector<int> first_pulled_;         // [num_tokens + 1]
};

float result_of(int rank) { return static_cast<float>(1 + rank % 64); }

Rounds::Rounds(const EpGroup& group, int rank, int hidden, int num_tokens, MpiRows rows, EpSum sum,
               const kernels::Kernels& kernels)
    : group_(group),
      hidden_(hidden),
      num_tokens_(num_tokens),
      rows_(rows),
      sums_(sum, num_tokens, hidden, kernels),
      experts_(route_tokens(group, rank, num_tokens)),
      weights_(weigh_tokens(group, rank, num_tokens)),
      ones_(static_cast<size_t>(group.top_k), 1.0f),
      row_bytes_(static_cast<size_t>(hidden) * sizeof(Bf16)),
      message_bytes_(row_bytes_ + 4 * static_cast<size_t>(one_row_per_rank() ? group.top_k : 1)),
      to_(group.num_ranks),
      from_(group.num_ranks),
      results_to_(group.num_ranks),
      results_from_(group.num_ranks),
      fill_(static_cast<size_t>(group.num_ranks)),
      last_token_(static_cast<size_t>(group.num_ranks)) {
  MPI_Type_contiguous(static_cast<int>(message_bytes_), MPI_BYTE, &message_type_);
  MPI_Type_contiguous(static_cast<int>(row_bytes_), MPI_BYTE, &result_type_);
  MPI_Type_commit(&message_type_);
  MPI_Type_commit(&result_type_);
  fill(rank);
}

void Rounds::fill(int rank) {
  const size_t tokens = static_cast<size_t>(num_tokens_), hidden = static_cast<size_t>(hidden_);
  const size_t sent = tokens * static_cast<size_t>(group_.top_k);
  input_ = base::AlignedBytes(tokens * row_bytes_);
  std::fill_n(input_.as<Bf16>(), tokens * hidden, Bf16(1.0f));
  send_ = base::AlignedBytes(sent * message_bytes_);
  returned_ = base::AlignedBytes(sent * row_bytes_);
  // Exchanged once here, only to size the buffers; every round exchanges its counts again.
  count_rows();
  MPI_Alltoall(to_.counts.data(), 1, MPI_INT, from_.counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  receive_ = base::AlignedBytes(static_cast<size_t>(from_.sum_up()) * message_bytes_);
  Shares entries(group_.num_ranks);
  for (const int32_t expert : experts_) ++entries.counts[group_.rank_of(expert)];
  MPI_Alltoall(entries.counts.data(), 1, MPI_INT, results_to_.counts.data(), 1, MPI_INT,
               MPI_COMM_WORLD);
  const size_t results = static_cast<size_t>(results_to_.sum_up());
  results_ = base::AlignedBytes(results * row_bytes_);
  std::fill_n(results_.as<Bf16>(), results * hidden, Bf16(result_of(rank)));
}

// Calls visit(token, k, destination, begins) for every expert of every token. begins: a new row for
// the destination starts here; false if the token's row for this rank is already sent.
template <typename Visit>
void Rounds::for_each_row(Visit visit) {
  std::fill(last_token_.begin(), last_token_.end(), -1);
  const int top_k = group_.top_k, slots = group_.slots_per_rank();
  for (int token = 0; token < num_tokens_; ++token) {
    for (int k = 0; k < top_k; ++k) {
      const int to = experts_[static_cast<size_t>(token * top_k + k)] / slots;
      const bool again = one_row_per_rank() && last_token_[to] == token;
      last_token_[to] = token;
      visit(token, k, to, !again);
    }
  }
}

void Rounds::count_rows() {
  std::fill(to_.counts.begin(), to_.counts.end(), 0);
  std::fill(results_from_.counts.begin(), results_from_.counts.end(), 0);
  for_each_row([&](int, int, int to, bool begins) {
    to_.counts[to] += begins;
    results_from_.counts[to] += begins || rows_ == MpiRows::kOncePerRank;
  });
  to_.sum_up();
  results_from_.sum_up();
}

void Rounds::pack() {
  fill_ = to_.starts;
  for_each_row([&](int token, int k, int to, bool begins) {
    if (begins) {
      std::byte* message = send_.data() + static_cast<size_t>(fill_[to]++) * message_bytes_;
      std::memcpy(message, input_.data() + static_cast<size_t>(token) * row_bytes_, row_bytes_);
      std::memset(message + row_bytes_, 0xff, message_bytes_ - row_bytes_);
    }
    auto* experts = reinterpret_cast<int32_t*>(
        send_.data() + static_cast<size_t>(fill_[to] - 1) * message_bytes_ + row_bytes_);
    while (*experts >= 0) ++experts;
    *experts = experts_[static_cast<size_t>(token * group_.top_k + k)];
  });
}

// Counts the results that go back to each rank: one per received row, or (kOncePerRank) one per
// expert id that came with the rows.
void Rounds::count_results() {
  if (rows_ != MpiRows::kOncePerRank) {
    results_to_.counts = from_.counts;
  } else {
    for (int source = 0; source < group_.num_ranks; ++source) {
      int count = 0;
      for (int row = 0; row < from_.counts[source]; ++row) {
        const auto at = static_cast<size_t>(from_.starts[source] + row) * message_bytes_;
        const auto* experts = reinterpret_cast<const int32_t*>(receive_.data() + at + row_bytes_);
        for (int k = 0; k < group_.top_k && experts[k] >= 0; ++k) ++count;
      }
      results_to_.counts[source] = count;
    }
  }
  results_to_.sum_up();
}

void Rounds::round() {
  count_rows();
  MPI_Alltoall(to_.counts.data(), 1, MPI_INT, from_.counts.data(), 1, MPI_INT, MPI_COMM_WORLD);
  from_.sum_up();
  pack();
  MPI_Alltoallv(send_.data(), to_.counts.data(), to_.starts.data(), message_type_, receive_.data(),
                from_.counts.data(), from_.starts.data(), message_type_, MPI_COMM_WORLD);
  count_results();
  MPI_Alltoallv(results_.data(), results_to_.counts.data(), results_to_.starts.data(), result_type_,
                returned_.data(), results_from_.counts.data(), results_from_.starts.data(),
                result_type_, MPI_COMM_WORLD);
  reduce();
}

// Rows that are already sums (one per rank) are weighted, so their weights here are 1.
void Rounds::reduce() {
  pulled_.clear();
  first_pulled_.assign(1, 0);
  fill_ = results_from_.starts;
  for_each_row([&](int token, int, int to, bool begins) {
    if (static_cast<int>(first_pulled_.size()) <= token) {
      first_pulled_.push_back(static_cast<int>(pulled_.size()));
    }
    if (!begins && rows_ == MpiRows::kPerRank) return;
    pulled_.push_back(returned_.data() + static_cast<size_t>(fill_[to]++) * row_bytes_);
  });
  first_pulled_.push_back(static_cast<int>(pulled_.size()));
  for (int token = 0; token < num_tokens_; ++token) {
    const bool summed = rows_ == MpiRows::kPerRank;
    const auto first = static_cast<size_t>(first_pulled_[token]);
    const auto end = static_cast<size_t>(first_pulled_[token + 1]);
    sums_.add_up(token, std::span(pulled_).subspan(first, end - first),
                 summed ? ones_.data() : weights_.data() + size_t(token) * group_.top_k,
                 kernels::RowFormat::kBf16, returned_.data() + (pulled_[first] - returned_.data()));
  }
}

void Rounds::check() {
  sums_.clear();
  round();
  std::vector<double> expected(static_cast<size_t>(num_tokens_), 0.0);
  for_each_row([&](int token, int k, int to, bool begins) {
    const float weight = weights_[static_cast<size_t>(token) * group_.top_k + k];
    if (rows_ == MpiRows::kPerRank) {
      expected[token] += begins ? result_of(to) : 0.0;
    } else {
      expected[token] += double{weight} * result_of(to);
    }
  });
  for (int token = 0; token < num_tokens_; ++token) {
    if (sums_.matches(token, expected[token], kernels::RowFormat::kBf16, group_.top_k)) continue;
    give_up("a wrong sum");
  }
}

int choose_count(Rounds& rounds, int64_t nanoseconds) {
  const int64_t start = base::wall_ns();
  for (int i = 0; i < 3; ++i) rounds.round();
  const int64_t one = std::max<int64_t>(1, (base::wall_ns() - start) / 3);
  int count = static_cast<int>(std::clamp<int64_t>(nanoseconds / one, 3, kMaxRounds));
  MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return count;
}

// Measures a block of rounds. The result is complete on rank 0 only: as for wideep, the median over
// rounds of the slowest rank, and the duration of the block per round.
measure::MpiBaseline::Times time_rounds(Rounds& rounds, int64_t nanoseconds) {
  rounds.check();
  const int count = choose_count(rounds, nanoseconds);
  std::vector<int64_t> mine(static_cast<size_t>(count)), slowest(mine.size());
  MPI_Barrier(MPI_COMM_WORLD);
  const int64_t start = base::wall_ns();
  for (int64_t& time : mine) {
    const int64_t begin = base::wall_ns();
    rounds.round();
    time = base::wall_ns() - begin;
  }
  const int64_t end = base::wall_ns();
  int64_t first = 0, last = 0;
  MPI_Reduce(mine.data(), slowest.data(), count, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
  MPI_Reduce(&start, &first, 1, MPI_INT64_T, MPI_MIN, 0, MPI_COMM_WORLD);
  MPI_Reduce(&end, &last, 1, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
  const auto middle = slowest.begin() + count / 2;
  std::nth_element(slowest.begin(), middle, slowest.end());
  return {static_cast<double>(*middle) * 1e-3, static_cast<double>(last - first) / count * 1e-3};
}

// tokens, rows, microseconds; tokens −1: the end. Rank 0 reads the line, the others poll the
// broadcast and sleep in between: a blocking MPI_Bcast would spin and take their cores from the
// ranks that are measured.
using Order = std::array<int, 3>;
Order next_order(int rank) {
  Order order{-1, 0, 0};
  char line[128];
  if (rank == 0 && std::fgets(line, sizeof(line), stdin) != nullptr &&
      std::sscanf(line, "%d %d %d", &order[0], &order[1], &order[2]) != 3) {
    give_up("expected: tokens, rows, microseconds");
  }
  MPI_Request request;
  MPI_Ibcast(order.data(), 3, MPI_INT, 0, MPI_COMM_WORLD, &request);
  for (int done = 0;;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done != 0) return order;
    ::usleep(5000);
  }
}

// processors: "0,1,0,1", one for each rank.
void pin_to_processor(std::string_view processors, int rank) {
  for (int i = 0; i < rank; ++i) processors.remove_prefix(processors.find(',') + 1);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(number_of(processors), &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 8) give_up("this program is started by wideep bench ep --baseline mpi, not by hand");
  int rank = 0;
  EpGroup group;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &group.num_ranks);
  group.num_experts = number_of(argv[1]);
  group.top_k = number_of(argv[2]);
  const int hidden = number_of(argv[3]);
  const auto routing = measure::routing_of(argv[4]);
  const auto sum = measure::sum_of(argv[6]);
  const auto kernels = kernels::select_kernels(std::getenv("WIDEEP_ISA"));
  if (!routing.ok() || !sum.ok() || !kernels.ok()) {
    give_up("unknown routing, sum or instruction set");
  }
  group.routing = *routing;
  group.seed = std::strtoull(argv[5], nullptr, 10);
  pin_to_processor(argv[7], rank);
  for (Order order = next_order(rank); order[0] >= 0; order = next_order(rank)) {
    Rounds rounds(group, rank, hidden, order[0], static_cast<MpiRows>(order[1]), *sum, **kernels);
    const auto times = time_rounds(rounds, int64_t{order[2]} * 1000);
    if (rank == 0) {
      fmt::print("microseconds {} {}\n", times.round, times.mean);
      std::fflush(stdout);
    }
  }
  MPI_Finalize();
}
