// SPDX-License-Identifier: Apache-2.0
//
// The parent makes a socket pair for every two ranks. A child inherits its own ends alone, so that
// the others see the end of a rank that dies, and learns their numbers from the environment. A rank
// that hangs is given up after a deadline, and named. The sockets carry the handles of segments and
// the bytes by which ranks meet: before the first launch, when all segments are mapped, and at the
// end, before anybody's memory is given back under a peer that still reads it. The case and its
// tokens come from a fixed seed, so that every rank makes all of them and knows its own expected
// results.
#include "cuda/programs/rank_process_testing.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "base/try.h"
#include "cuda/cuda_devices.h"
#include "cuda/symmetric_memory.h"

namespace wideep::cuda {
namespace {

constexpr const char* kRankVariable = "WIDEEP_CUDA_RANK";        // "1"
constexpr const char* kSocketsVariable = "WIDEEP_CUDA_SOCKETS";  // "-1 5 7": one to each peer
constexpr const char* kWaysVariable = "WIDEEP_CUDA_WAYS";        // SharingWays

// How long a rank waits for what a peer sends. The parent waits somewhat longer for the ranks, so
// that they say first whom they waited for.
constexpr std::chrono::seconds kReceiveDeadline{120}, kEndDeadline{130};

// Without its data, the same in all ranks. Small: processes that share a GPU take turns on it, some
// milliseconds each, and every flag may wait for a turn.
ExchangeCase case_of_processes(int num_ranks) {
  ExchangeCase c;
  c.shape = {.ep_size = num_ranks,
             .num_experts = 8 * num_ranks,
             .slots_per_rank = 8,
             .top_k = 4,
             .max_tokens = 32};
  c.hidden = 512;
  c.row_format = c.result_format = RowFormat::kFp8;
  c.shape.row_bytes = c.shape.result_bytes =
      static_cast<uint32_t>(kernels::row_bytes(c.row_format, c.hidden));
  for (int slot = 0; slot < c.shape.num_slots(); ++slot) c.slot_experts.push_back(slot);
  c.num_calls = 3;
  c.options = {.deadline = std::chrono::seconds(20),
               .num_blocks = 4,
               .num_threads = 256,
               .num_index_threads = 256,
               .num_receive_blocks = 2};
  c.seed = 99;
  return c;
}

// All ranks have come here.
Status meet(const std::vector<int>& sockets) {
  char byte = 0;
  for (size_t peer = 0; peer < sockets.size(); ++peer) {
    if (sockets[peer] >= 0 && send(sockets[peer], &byte, 1, MSG_NOSIGNAL) != 1) {
      return failed(fmt::format("rank {} is gone", peer));
    }
  }
  for (size_t peer = 0; peer < sockets.size(); ++peer) {
    if (sockets[peer] < 0) continue;
    const ssize_t received = recv(sockets[peer], &byte, 1, 0);
    if (received < 0 && errno == EAGAIN) {
      return failed(fmt::format("rank {} has not come for {} s", peer, kReceiveDeadline.count()));
    }
    if (received != 1) return failed(fmt::format("rank {} is gone", peer));
  }
  return {};
}

// The segments of all ranks in this process; owned by `memory`.
Result<std::vector<std::byte*>> share_segments(size_t num_bytes, int rank,
                                               const std::vector<int>& sockets, SharingWays ways,
                                               std::vector<SymmetricMemory>* memory) {
  std::vector<std::byte*> segments(sockets.size());
  WIDEEP_TRY_ASSIGN(SymmetricMemory mine, SymmetricMemory::create(num_bytes, ways));
  segments[static_cast<size_t>(rank)] = mine.data();
  for (const int socket : sockets) {
    if (socket < 0) continue;
    WIDEEP_TRY(send_memory(socket, mine, ways));
  }
  memory->push_back(std::move(mine));
  for (size_t peer = 0; peer < sockets.size(); ++peer) {
    if (sockets[peer] < 0) continue;
    Result<SymmetricMemory> theirs = receive_memory(sockets[peer], num_bytes);
    if (!theirs.ok()) return theirs.status().at(fmt::format("the segment of rank {}", peer));
    segments[peer] = theirs->data();
    memory->push_back(std::move(*theirs));
  }
  return segments;
}

Status play_rank(int rank, const std::vector<int>& sockets, SharingWays ways) {
  const ExchangeCase c = case_of_processes(static_cast<int>(sockets.size()));
  const std::vector<CallTokens> calls = random_tokens(c);
  WIDEEP_TRY_ASSIGN(const std::vector<CallResults> expected, run_on_cpu(c, calls));
  WIDEEP_TRY_ASSIGN(const auto devices, CudaDevices::create(c.shape.ep_size, Sharing::kStreams));
  const BufferLayout layout(c.shape);
  std::vector<SymmetricMemory> memory;
  WIDEEP_TRY_ASSIGN(const std::vector<std::byte*> segments,
                    share_segments(layout.segment_bytes(), rank, sockets, ways, &memory));
  WIDEEP_TRY(devices->clear(rank, segments[static_cast<size_t>(rank)], layout.zeroed_bytes()));
  WIDEEP_TRY_ASSIGN(const auto exchange,
                    ExchangeOnDevices::create_one(*devices, c, rank, segments));
  for (int call = 0; call < c.num_calls; ++call) {
    WIDEEP_TRY(
        exchange->write(rank, call, calls[static_cast<size_t>(call)][static_cast<size_t>(rank)]));
  }
  WIDEEP_TRY(meet(sockets));  // all segments are there
  for (int call = 0; call < c.num_calls; ++call) WIDEEP_TRY(exchange->launch(rank, call));
  WIDEEP_TRY(devices->finish());
  WIDEEP_TRY(compare_rank(*exchange, c, rank, expected));
  return meet(sockets);  // nobody reads this segment any more
}

using Sockets = std::vector<std::vector<int>>;  // [a][b]: of rank a, to rank b; −1: none

// A process of one rank, which has that rank's sockets and no others.
Result<pid_t> start_rank(size_t rank, const Sockets& sockets, SharingWays ways) {
  std::string list;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (const int socket : sockets[rank]) {
    list += fmt::format("{} ", socket);
    // Onto itself: it stays open in the child.
    if (socket >= 0) posix_spawn_file_actions_adddup2(&actions, socket, socket);
  }
  setenv(kRankVariable, std::to_string(rank).c_str(), 1);
  setenv(kWaysVariable, std::to_string(ways).c_str(), 1);
  setenv(kSocketsVariable, list.c_str(), 1);
  pid_t process = 0;
  std::string path = "/proc/self/exe";
  char* arguments[] = {path.data(), nullptr};
  const int error = posix_spawn(&process, path.c_str(), &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  unsetenv(kRankVariable);
  unsetenv(kSocketsVariable);
  unsetenv(kWaysVariable);
  if (error != 0) return failed(fmt::format("rank {}: {}", rank, std::strerror(error)));
  return process;
}

// Both ends end with their process, unless start_rank() passes them on, and wait for a peer until
// the deadline.
Status make_sockets(Sockets* sockets) {
  const timeval deadline{.tv_sec = kReceiveDeadline.count(), .tv_usec = 0};
  for (size_t a = 0; a < sockets->size(); ++a) {
    for (size_t b = a + 1; b < sockets->size(); ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return failed(std::strerror(errno));
      }
      (*sockets)[a][b] = pair[0];
      (*sockets)[b][a] = pair[1];
      for (const int end : pair) {
        if (setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &deadline, sizeof(deadline)) != 0) {
          return failed(std::strerror(errno));
        }
      }
    }
  }
  return {};
}

// Waits for the processes, by rank, and kills those that have not ended at the deadline.
Status wait_for(const std::vector<pid_t>& processes) {
  const auto end = std::chrono::steady_clock::now() + kEndDeadline;
  std::string bad, late;
  for (size_t rank = 0; rank < processes.size(); ++rank) {
    int status = 0;
    while (waitpid(processes[rank], &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      late += fmt::format(" {}", rank);
      kill(processes[rank], SIGKILL);
      waitpid(processes[rank], &status, 0);
      status = 0;  // not also among those below
      break;
    }
    if (status != 0) bad += fmt::format(" {}", rank);
  }
  std::string what;
  if (!late.empty()) what = fmt::format("ranks that ran {} s:{}", kEndDeadline.count(), late);
  if (!bad.empty()) what += (late.empty() ? "" : "; ") + ("ranks that did not end well:" + bad);
  return what.empty() ? Status{} : failed(what);
}

}  // namespace

std::optional<int> run_as_rank_process() {
  const char* rank = std::getenv(kRankVariable);
  const char* sockets = std::getenv(kSocketsVariable);
  const char* ways = std::getenv(kWaysVariable);
  if (rank == nullptr || sockets == nullptr || ways == nullptr) return {};
  std::istringstream text(sockets);
  std::vector<int> all;
  for (int socket = 0; text >> socket;) all.push_back(socket);
  const Status status = play_rank(std::atoi(rank), all, static_cast<SharingWays>(std::atoi(ways)));
  if (!status.ok()) fmt::print(stderr, "rank {}: {}\n", rank, status.message());
  return status.exit_code();
}

Status run_rank_processes(int num_ranks, SharingWays ways) {
  Sockets sockets(static_cast<size_t>(num_ranks),
                  std::vector<int>(static_cast<size_t>(num_ranks), -1));
  Status started = make_sockets(&sockets);
  std::vector<pid_t> processes;
  for (size_t rank = 0; rank < sockets.size() && started.ok(); ++rank) {
    const Result<pid_t> process = start_rank(rank, sockets, ways);
    if (process.ok()) processes.push_back(*process);
    started = process.status();
  }
  // Those that have started see the end of one that has not.
  for (const auto& row : sockets) {
    for (const int socket : row) {
      if (socket >= 0) close(socket);
    }
  }
  const Status ended = wait_for(processes);
  return started.ok() ? ended : started;
}

}  // namespace wideep::cuda
