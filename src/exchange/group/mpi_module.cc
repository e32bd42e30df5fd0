// SPDX-License-Identifier: Apache-2.0
//
// MPI only connects the ranks and carries messages between nodes; within a node they share memory
// as always. Ranks are numbered anew, so that those of a node follow each other. Sends and
// receives are non-blocking and only tested, for MPI's own waits have no deadline; where MPI waits
// all the same (start and end), a thread ends the process when it takes too long.
#include "group/mpi_module.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>

#include "base/try.h"
#include "group/mpi_message_type.h"

namespace wideep::transport {
namespace {

constexpr std::chrono::seconds kStartLimit{120};
constexpr std::chrono::seconds kEndLimit{10};

Status error_of(const char* what, int code) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return failed(fmt::format("MPI: {}: {}", what, text.data()));
}

// Each link has its own communicator, so messages of two links cannot be confused.
class MpiLink : public Link {
 public:
  // Collective. Rank numbers are those of `ranks`.
  explicit MpiLink(MPI_Comm ranks) {
    MPI_Comm_dup(ranks, &comm_);
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }

  void send(int to, Bytes message) override {
    // In a list, whose elements do not move: MPI uses the buffer until the send has completed.
    Transfer& transfer = sending_.emplace_back();
    transfer.message = std::move(message);
    const MpiMessageType type(transfer.message.size());
    note("send", MPI_Isend(transfer.message.data(), type.count(), type.type(), to, 0, comm_,
                           &transfer.request));
  }

  std::optional<Received> receive() override {
    drop_sent();
    int found = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    note("probe", MPI_Improbe(MPI_ANY_SOURCE, 0, comm_, &found, &message, &status));
    if (found != 0) begin_receiving(message, status);
    // Only the oldest receive may be returned, even if a later one is complete: messages of a rank
    // must keep the order in which they were probed.
    if (receiving_.empty() || !is_complete(receiving_.front())) return {};
    Received first{receiving_.front().peer, std::move(receiving_.front().message)};
    receiving_.pop_front();
    return first;
  }

  bool has_sent_all() override {
    drop_sent();
    return sending_.empty();
  }

  Status failure() const override { return failure_; }

 private:
  struct Transfer {
    Bytes message;
    MPI_Request request = MPI_REQUEST_NULL;
    int peer = -1;
  };

  void note(const char* what, int code) {
    if (code != MPI_SUCCESS && failure_.ok()) failure_ = error_of(what, code);
  }

  bool is_complete(Transfer& transfer) {
    int done = 0;
    note("test", MPI_Test(&transfer.request, &done, MPI_STATUS_IGNORE));
    return done != 0;
  }

  void drop_sent() {
    for (auto at = sending_.begin(); at != sending_.end();) {
      at = is_complete(*at) ? sending_.erase(at) : std::next(at);
    }
  }

  // Matched probe and receive: the length is known before the buffer is allocated, and no other
  // probe can take the message in between.
  void begin_receiving(MPI_Message message, const MPI_Status& status) {
    Transfer& transfer = receiving_.emplace_back();
    transfer.peer = status.MPI_SOURCE;
    transfer.message.resize(MpiMessageType::length(status));
    const MpiMessageType type(transfer.message.size());
    note("receive", MPI_Imrecv(transfer.message.data(), type.count(), type.type(), &message,
                               &transfer.request));
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Transfer> sending_;
  std::list<Transfer> receiving_;
  Status failure_;
};

// Ends the process if MPI does not return in time; MPI's calls cannot be cancelled. on_late: called
// before, if there is one.
class TimeLimit {
 public:
  TimeLimit(std::chrono::seconds limit, int exit_code, std::function<void()> on_late)
      : thread_([=, this] {
          std::unique_lock lock(mutex_);
          if (ended_.wait_for(lock, limit, [this] { return has_ended_; })) return;
          if (on_late) on_late();
          std::_Exit(exit_code);
        }) {}
  ~TimeLimit() {
    {
      const std::lock_guard lock(mutex_);
      has_ended_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;
};

// Equal for ranks that can pass file descriptors to each other over an abstract socket: the boot id
// identifies the kernel, and the network namespace is where abstract names are visible.
std::string node_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat network{};
  ::stat("/proc/self/ns/net", &network);
  const char* name = std::getenv("WIDEEP_NODE");
  return fmt::format("{}/{}/{}", boot, network.st_ino, name == nullptr ? "" : name);
}

using Name = std::array<char, 128>;

// The node of each of the ranks. Nodes are numbered in the order of their first ranks, so node 0 has
// rank 0.
std::vector<int> nodes_of_ranks(MPI_Comm ranks, int num_ranks) {
  Name mine{};
  node_name().copy(mine.data(), mine.size() - 1);
  std::vector<Name> all(static_cast<size_t>(num_ranks));
  MPI_Allgather(mine.data(), sizeof(Name), MPI_BYTE, all.data(), sizeof(Name), MPI_BYTE, ranks);
  std::map<Name, int> numbers;
  std::vector<int> nodes;
  for (const Name& name : all) {
    nodes.push_back(numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

MpiConnection connect_ranks(MPI_Comm ranks) {
  int num_ranks = 0, mpi_rank = 0;
  MPI_Comm_size(ranks, &num_ranks);
  MPI_Comm_rank(ranks, &mpi_rank);
  std::vector<int> nodes = nodes_of_ranks(ranks, num_ranks);
  // Sorts the ranks by node, then by MPI rank. So ranks of a node are consecutive.
  MPI_Comm ordered = MPI_COMM_NULL;
  MPI_Comm_split(ranks, 0, nodes[static_cast<size_t>(mpi_rank)] * num_ranks + mpi_rank, &ordered);
  MpiConnection connection;
  MPI_Comm_rank(ordered, &connection.rank);
  std::sort(nodes.begin(), nodes.end());
  connection.nodes = std::move(nodes);
  connection.control = std::make_unique<MpiLink>(ordered);
  connection.data = std::make_unique<MpiLink>(ordered);
  return connection;
}

Status connect(const MpiModule::Launched& launched, const MpiHost& host,
               MpiConnection* connection) {
  const TimeLimit limit(kStartLimit, 1, [log_late = host.log_late] {
    log_late("connecting the ranks", kStartLimit);
  });
  int provided = 0, num_ranks = 0, mpi_rank = 0;
  WIDEEP_TRY(
      error_of("start", MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided)));
  MPI_Comm_size(MPI_COMM_WORLD, &num_ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &mpi_rank);
  if (num_ranks != launched.num_ranks) {
    MPI_Finalize();
    return invalid_input(fmt::format(
        "{} has started {} processes, but MPI sees {}: use a launcher that MPI supports "
        "(srun --mpi=pmix, or mpirun)",
        launched.launcher, launched.num_ranks, num_ranks));
  }
  MPI_Comm ranks = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, launched.group, mpi_rank, &ranks);
  *connection = connect_ranks(ranks);
  return {};
}

// MPI_Finalize waits for all ranks; it may never return.
void finalize(int exit_code) {
  const TimeLimit limit(kEndLimit, exit_code, nullptr);
  MPI_Finalize();
}

}  // namespace
}  // namespace wideep::transport

extern "C" __attribute__((visibility("default"))) const wideep::transport::MpiModule*
wideep_mpi_module() {
  static constexpr wideep::transport::MpiModule kModule{WIDEEP_VERSION, wideep::transport::connect,
                                                        wideep::transport::finalize};
  return &kModule;
}
