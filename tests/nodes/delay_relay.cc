// SPDX-License-Identifier: Apache-2.0
//
//   delay_relay <interface> <interface> <microseconds>
//
// A network delay for scripts/test_nodes.sh, for kernels without netem: every frame that arrives at
// one interface leaves through the other that many microseconds later, in order. Runs until a
// signal ends it; needs the right to open packet sockets.
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Frames arrive as the sender's kernel holds them: up to 64 KiB, to be segmented later, with
// checksums not yet computed. The virtio header that describes this is read and written with each
// frame.
constexpr size_t kLargestFrame = 10 + 64 * 1024 + 256;
// The most frames that are kept; more are dropped, as in a switch.
constexpr size_t kMaxFrames = 4096;

[[noreturn]] void fail(const char* what, const char* interface) {
  std::cerr << "delay_relay: " << interface << ": " << what << ": " << std::strerror(errno) << '\n';
  std::exit(2);
}

int open_interface(const char* name) {
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(name));
  if (address.sll_ifindex == 0) fail("no such interface", name);

  const int file = socket(AF_PACKET, SOCK_RAW, 0);
  if (file < 0) fail("no packet socket", name);
  const int on = 1;
  const int buffer_bytes = 16 << 20;
  if (setsockopt(file, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof(on)) != 0 ||
      setsockopt(file, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on)) != 0 ||
      setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof(buffer_bytes)) != 0) {
    fail("options", name);
  }
  if (bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    fail("bind", name);
  }
  return file;
}

struct Frame {
  Clock::time_point due;
  std::vector<char> bytes;
};

// Relays frames from one interface to the other.
struct Direction {
  int from = -1;
  int to = -1;
  std::deque<Frame> under_way{};
};

void take_in(Direction& direction, Clock::duration delay) {
  static std::array<char, kLargestFrame> bytes;
  ssize_t size = 0;
  while ((size = recv(direction.from, bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0) {
    if (direction.under_way.size() == kMaxFrames) continue;
    direction.under_way.push_back(
        {.due = Clock::now() + delay, .bytes = {bytes.data(), bytes.data() + size}});
  }
}

void send_due(Direction& direction) {
  while (!direction.under_way.empty() && direction.under_way.front().due <= Clock::now()) {
    const Frame& frame = direction.under_way.front();
    // A frame that the interface does not accept is lost; TCP sends it again.
    (void)send(direction.to, frame.bytes.data(), frame.bytes.size(), 0);
    direction.under_way.pop_front();
  }
}

timespec until_next(const std::array<Direction, 2>& directions) {
  Clock::duration wait = std::chrono::seconds(1);
  for (const Direction& direction : directions) {
    if (direction.under_way.empty()) continue;
    wait = std::min(wait, direction.under_way.front().due - Clock::now());
  }
  wait = std::max(wait, Clock::duration::zero());
  return {.tv_sec = 0,
          .tv_nsec = std::min<int64_t>(std::chrono::nanoseconds(wait).count(), 999'999'999)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: delay_relay <interface> <interface> <microseconds>\n";
    return 2;
  }
  const std::chrono::microseconds delay(std::atoll(argv[3]));
  const int first = open_interface(argv[1]);
  const int second = open_interface(argv[2]);
  std::array<Direction, 2> directions{Direction{.from = first, .to = second},
                                      Direction{.from = second, .to = first}};
  std::cout << "ready" << std::endl;
  for (;;) {
    std::array<pollfd, 2> files{pollfd{.fd = first, .events = POLLIN, .revents = 0},
                                pollfd{.fd = second, .events = POLLIN, .revents = 0}};
    const timespec wait = until_next(directions);
    if (ppoll(files.data(), files.size(), &wait, nullptr) < 0 && errno != EINTR) {
      fail("poll", argv[1]);
    }
    for (Direction& direction : directions) {
      take_in(direction, delay);
      send_due(direction);
    }
  }
}
