// SPDX-License-Identifier: Apache-2.0
//
// To join is to leave first: the endpoint goes, messages of a complete iteration get a moment to
// arrive, and the rank tells its host what it has lost. Link and bridge stay until the next
// members are known, since a peer that still sends would take a closed connection for a failure.
// Each epoch has a new endpoint, and if it is on several nodes a new link: no word of an old epoch
// can reach a new one.
#include "group/kept_seat.h"

#include <unistd.h>

#include <span>
#include <utility>

#include "base/try.h"
#include "group/fault_drill.h"

namespace wideep::transport {
namespace {

// For the last messages of an iteration that is complete, before a rank leaves.
constexpr std::chrono::milliseconds kFlushTime{500};

// Without a front nobody listens; the keeper will say where to go on.
Status heard(const Status&) { return {}; }

}  // namespace

void FrontMessenger::change(int fd) {
  close();
  const std::lock_guard lock(mutex_);
  fd_ = fd;
  pipe_ = std::make_unique<MessagePipe>(fd);
}

void FrontMessenger::close() {
  const std::lock_guard lock(mutex_);
  if (pipe_ == nullptr) return;
  pipe_->finish();
  pipe_.reset();
  ::close(fd_);
}

Status FrontMessenger::send(std::string_view message) const {
  const std::lock_guard lock(mutex_);
  return pipe_ == nullptr ? Status() : heard(pipe_->send(message));
}

Status FrontMessenger::send_with_next(std::string_view message) const {
  const std::lock_guard lock(mutex_);
  return pipe_ == nullptr ? Status() : heard(pipe_->send_with_next(message));
}

KeptSeat::KeptSeat(std::shared_ptr<SharedMemory> memory, int rank, const GroupOptions& options,
                   const NodePlace* place, const NoteSocket& host, int commands, int messages)
    : memory_(std::move(memory)),
      rank_(rank),
      options_(options),
      place_(place),
      host_(host),
      commands_(commands),
      messenger_(messages) {}

KeptSeat::~KeptSeat() {
  if (listener_ >= 0) ::close(listener_);
  ::close(commands_);
}

Status KeptSeat::listen() {
  if (place_ == nullptr) return {};
  WIDEEP_TRY_ASSIGN(listener_, listen_on(place_->here));
  return {};
}

// The link stays until all have left: a peer may still send what nobody needs any more, and would
// take a closed connection for a failure.
void KeptSeat::leave() {
  world_.reset();
  if (bridge_ != nullptr && memory_->failure().ok()) bridge_->flush(kFlushTime);
}

Result<std::optional<Members>> KeptSeat::join() {
  leave();
  FaultDrill::pass(epoch_ == 0 ? FaultDrill::Step::kLoaded : FaultDrill::Step::kLeaving);
  Note note{
      .kind = epoch_ == 0 ? Note::Kind::kReady : Note::Kind::kLeft, .epoch = epoch_, .rank = rank_};
  if (epoch_ > 0) {
    note.set_text(memory_->failure().message());
    note.value = link_ != nullptr ? link_->cut_from() : Link::kNone;
  } else if (listener_ >= 0) {
    note.set_text(local_address(listener_).text());
  }
  const bool sent = host_.send(note);
  std::array<int, 2> fds;
  if (!sent || host_.receive(&note, true, &fds) != NoteSocket::Got::kNote) {
    return failed("the process that keeps the ranks has ended");
  }
  if (note.kind == Note::Kind::kEnd) return std::optional<Members>();
  if (note.kind == Note::Kind::kFailed) return note.status();
  Members members = note.members();
  members.has_new_front = fds[0] != NoteSocket::kNone;
  if (members.has_new_front) {
    ::close(std::exchange(commands_, fds[0]));
    messenger_.change(fds[1]);
  }
  enter(members);
  FaultDrill::pass(FaultDrill::Step::kJoined);
  return std::optional(std::move(members));
}

void KeptSeat::enter(const Members& members) {
  epoch_ = members.epoch;
  bridge_.reset();
  link_.reset();
  world_ = make_endpoint(memory_, rank_, options_.timeout, options_.faults);
  if (place_ == nullptr) return;
  NodeMap nodes = place_->nodes.of_members(members.ranks);
  if (nodes.num_nodes() == 1) return;
  const auto& addresses = memory_->control().addresses;
  link_ = std::make_unique<TcpLink>(
      listener_,
      TcpLink::Place{
          .service = place_->service, .epoch = epoch_, .rank = rank_, .key = place_->links},
      std::span(addresses).first(static_cast<size_t>(memory_->num_ranks())));
  bridge_ = std::make_unique<Bridge>(memory_, *link_, std::move(nodes), rank_);
  world_->set_bridge(bridge_.get());
}

// The group fails when the keeper says so, at a deadline of a member, or with a connection. A rank
// that has failed it because it cannot go on itself would fail the next one, too.
bool KeptSeat::has_lost(const Status& ended) const {
  if (memory_->failed_rank() == rank_) return false;
  return memory_->control().broken_epoch.load() == epoch_ ||
         ended.code() == StatusCode::kDeadlineExceeded || !memory_->failure().ok();
}

}  // namespace wideep::transport
