// SPDX-License-Identifier: Apache-2.0
//
// Two processes, each with one expert and three tokens: every token is sent to both experts, and
// its result is the sum of theirs. In CMake: target_link_libraries(... wideep::communicator).
#include <sys/wait.h>
#include <unistd.h>
#include <wideep/communicator.h>

#include <array>
#include <cstdio>

using namespace wideep::ep;

constexpr int kTokens = 3;
using Row = std::array<float, 4>;

// Expert 0 doubles, expert 1 adds one.
void compute(int expert, const ReceivedRow& received) {
  const Row& row = *reinterpret_cast<const Row*>(received.row);
  Row& result = *reinterpret_cast<Row*>(received.result);
  for (size_t i = 0; i < row.size(); ++i) result[i] = expert == 0 ? 2 * row[i] : row[i] + 1;
}

wideep::Status run_rank(CommunicatorGroup& group, int rank) {
  auto communicator = group.join(rank);
  if (!communicator.ok()) return communicator.status();
  std::array<Row, kTokens> tokens;
  std::array<int32_t, 2 * kTokens> slots;
  for (int t = 0; t < kTokens; ++t) {
    tokens[t].fill(static_cast<float>(10 * rank + t));
    slots[2 * t] = 0;
    slots[2 * t + 1] = 1;
  }
  wideep::Status status = communicator->dispatch(tokens.data(), sizeof(Row), kTokens, slots);
  if (!status.ok()) return status;
  for (const ReceivedRow& row : communicator->rows_of_slot(0)) compute(rank, row);
  if (status = communicator->combine(); !status.ok()) return status;
  for (int t = 0; t < kTokens; ++t) {
    float sum = 0;
    for (const std::byte* result : communicator->results(t)) {
      sum += (*reinterpret_cast<const Row*>(result))[0];
    }
    std::printf("rank %d, token %g: %g\n", rank, tokens[t][0], sum);
  }
  return {};
}

int main() {
  auto group = CommunicatorGroup::create({.num_ranks = 2,
                                          .slots_per_rank = 1,
                                          .top_k = 2,
                                          .max_tokens = kTokens,
                                          .row_bytes = sizeof(Row),
                                          .result_bytes = sizeof(Row)});
  if (!group.ok()) {
    std::fprintf(stderr, "error: %s\n", group.status().message().c_str());
    return group.status().exit_code();
  }
  const pid_t child = fork();
  const wideep::Status status = run_rank(*group, child == 0 ? 1 : 0);
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.message().c_str());
  std::fflush(stdout);
  if (child > 0) wait(nullptr);
  return status.exit_code();
}
