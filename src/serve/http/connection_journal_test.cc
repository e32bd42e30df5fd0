// SPDX-License-Identifier: Apache-2.0
//
// Journals are opened again as another process would, in each state in which the one before may
// have been killed, over real TCP connections, since half of the truth is the kernel's. One case
// kills processes at random instants while 12 MB are echoed: a byte that is lost or comes twice
// fails it. Others are the edges: the end of a stream, the next lap of the ring, memory given back,
// headers that are spoiled.
#include "http/connection_journal.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <random>
#include <thread>

namespace wideep::server {
namespace {

using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::steady_clock;
using testing::ElementsAre;

// The two ends of a TCP connection.
struct Connection {
  Connection() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listener, 1), 0);
    ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length);
    client = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    server = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    const auto made = ConnectionJournal::create(server);
    EXPECT_TRUE(made.ok()) << made.status().message();
    memory = *made;
  }
  ~Connection() {
    for (const int fd : {client, server, memory}) ::close(fd);
  }
  // As another process would open it.
  std::unique_ptr<ConnectionJournal> open() const {
    auto opened = ConnectionJournal::open(::dup(memory), server);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(*opened);
  }
  void client_sends(const std::string& text) const {
    ASSERT_EQ(::send(client, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    pollfd ready{server, POLLIN, 0};
    ASSERT_EQ(::poll(&ready, 1, 5000), 1);
  }
  // Into the journal's room, without an entry.
  size_t read_into(ConnectionJournal& journal) const {
    const auto room = journal.input_room();
    return static_cast<size_t>(::recv(server, room.data(), room.size(), MSG_DONTWAIT));
  }

  int client = -1, server = -1, memory = -1;
};

TEST(ConnectionJournal, KeepsWhatWasReadEvenWithoutAnEntry) {
  const Connection connection;
  connection.client_sends("GET /");
  auto first = connection.open();
  first->received(connection.read_into(*first));
  connection.client_sends("models");
  EXPECT_EQ(connection.read_into(*first), 6u);  // and then the process is killed
  EXPECT_EQ(first->input(), "GET /");
  EXPECT_EQ(connection.open()->input(), "GET /models");
}

// A client that has said all it has to say; its kernel may have sent that before the first look.
TEST(ConnectionJournal, DoesNotTakeTheEndForAByte) {
  for (const bool is_read : {false, true}) {
    const Connection connection;
    connection.client_sends("GET /");
    ASSERT_EQ(::shutdown(connection.client, SHUT_WR), 0);
    pollfd ended{connection.server, POLLRDHUP, 0};
    ASSERT_EQ(::poll(&ended, 1, 5000), 1);
    auto first = connection.open();
    EXPECT_EQ(first->input(), "");
    EXPECT_EQ(connection.read_into(*first), 5u);
    if (is_read) first->received(5);
    EXPECT_EQ(connection.open()->input(), "GET /");
    EXPECT_EQ(connection.read_into(*first), 0u);  // the end
    EXPECT_EQ(connection.open()->input(), "GET /");
  }
}

TEST(ConnectionJournal, KnowsWhatTheSocketHasNotTaken) {
  const Connection connection;
  auto journal = connection.open();
  EXPECT_EQ(journal->unsent(connection.server), "");
  journal->append("Hello, ", 1);
  EXPECT_EQ(journal->unsent(connection.server), "Hello, ");
  ASSERT_EQ(::send(connection.server, "Hello, ", 7, 0), 7);
  EXPECT_EQ(connection.open()->unsent(connection.server), "");
  journal->append("world", 2);
  ASSERT_EQ(::send(connection.server, "wo", 2, 0), 2);
  EXPECT_EQ(connection.open()->unsent(connection.server), "rld");
  EXPECT_EQ(connection.open()->num_calls(), 2u);
}

TEST(ConnectionJournal, KeepsRecordsUntilTheRequestEnds) {
  const Connection connection;
  auto journal = connection.open();
  journal->add_record("head");
  journal->add_record("");
  journal->add_record(std::string(100'000, 'x'));
  EXPECT_THAT(connection.open()->records(), ElementsAre("head", "", std::string(100'000, 'x')));
  journal->end_request(0, false);
  EXPECT_TRUE(connection.open()->records().empty());
  EXPECT_FALSE(connection.open()->closes());
}

// The beginning of the next request may have come together with this one.
TEST(ConnectionJournal, TheNextRequestBeginsWhereThisOneEnds) {
  const Connection connection;
  auto journal = connection.open();
  connection.client_sends("firstsecond");
  journal->received(connection.read_into(*journal));
  journal->end_request(5, false);
  EXPECT_EQ(journal->input(), "second");
  connection.client_sends("!");
  journal->received(connection.read_into(*journal));
  EXPECT_EQ(connection.open()->input(), "second!");
}

TEST(ConnectionJournal, TellsWhatDoesNotFit) {
  const Connection connection;
  auto journal = connection.open();
  journal->append(std::string(size_t{17} << 20, 'x'), 1);
  EXPECT_FALSE(journal->is_complete());
  EXPECT_FALSE(connection.open()->unsent(connection.server));
}

TEST(ConnectionJournal, RefusesASocketWithoutCounts) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_FALSE(ConnectionJournal::create(ends[0]).ok());
  for (const int fd : ends) ::close(fd);
}

// A process copies what a client sends back to it, in pieces, and is killed again and again at
// random instants; each time another one goes on. Not a byte is lost or comes twice.
TEST(ConnectionJournal, LosesNothingWhereverItsProcessIsKilled) {
  const Connection connection;
  constexpr size_t kBytes = 12'000'000;
  constexpr int kMinKills = 24;
  std::atomic<int> kills = 0;
  std::string sent(kBytes, '\0');
  std::mt19937 random(3);
  for (char& each : sent) each = static_cast<char>(random());
  std::thread client([&] {
    for (size_t at = 0; at < kBytes;) {
      // However fast a process is, many are killed before they have all.
      while (kills < static_cast<int>(at * kMinKills / kBytes)) {
        std::this_thread::sleep_for(microseconds(50));
      }
      const ssize_t count = ::send(connection.client, sent.data() + at,
                                   std::min<size_t>(7000, kBytes - at), MSG_NOSIGNAL);
      if (count < 0) break;
      at += static_cast<size_t>(count);
    }
  });
  const auto echo = [&] {
    auto journal = connection.open();
    const auto give = [&](std::string_view bytes) {
      while (!bytes.empty()) {
        const ssize_t count = ::send(connection.server, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
      }
    };
    give(*journal->unsent(connection.server));
    for (;;) {
      // What is in the input was not answered; append() and end_request() are two entries, so the
      // number of calls says whether the first was made.
      const std::string_view input = journal->input();
      if (!input.empty() && journal->num_calls() == 0) {
        journal->append(input, 1);
        give(input);
      }
      if (!input.empty()) journal->end_request(input.size(), false);
      const size_t count = connection.read_into(*journal);
      if (count < 1'000'000) journal->received(count);
    }
  };
  std::string got;
  std::atomic<size_t> received = 0;
  std::thread reader([&] {
    char bytes[8192];
    while (got.size() < kBytes) {
      const ssize_t count = ::recv(connection.client, bytes, sizeof(bytes), 0);
      if (count <= 0) break;
      got.append(bytes, static_cast<size_t>(count));
      received = got.size();
    }
  });
  // On a busy machine a process may be killed before it does anything: the next one has longer.
  int patience = 1;
  const auto end = steady_clock::now() + minutes(5);
  while (received < kBytes && steady_clock::now() < end) {
    const size_t before = received;
    const pid_t process = ::fork();
    if (process == 0) {
      echo();
      ::_exit(0);
    }
    std::this_thread::sleep_for(microseconds(patience * (100 + random() % 1200)));
    ::kill(process, SIGKILL);
    ::waitpid(process, nullptr, 0);
    patience = received == before ? std::min(2 * patience, 256) : 1;
    ++kills;
  }
  if (received < kBytes) ::shutdown(connection.client, SHUT_RDWR);
  const int num_kills = kills.exchange(kMinKills);  // the client waits for no more
  client.join();
  reader.join();
  EXPECT_TRUE(got == sent);
  EXPECT_GE(num_kills, kMinKills - 1);
}

// A client that stays connected must not hold what it has read.
TEST(ConnectionJournal, GivesTheMemoryOfSentRepliesBack) {
  const Connection connection;
  auto journal = connection.open();
  const auto resident_bytes = [&] {
    struct stat about = {};
    EXPECT_EQ(::fstat(connection.memory, &about), 0);
    return static_cast<size_t>(about.st_blocks) * 512;
  };
  const std::string reply(300'000, 'x');
  for (int i = 0; i < 200; ++i) {  // three times around the ring
    journal->append(reply, 1);
    journal->sent_all_but(0);
    journal->end_request(0, false);
    EXPECT_LT(resident_bytes(), size_t{256} << 10);
  }
}

TEST(ConnectionJournal, KeepsWhatIsNotSent) {
  const Connection connection;
  auto journal = connection.open();
  std::string all;
  for (int i = 0; all.size() < 5'000'000; ++i) {
    const std::string part =
        std::to_string(i) + std::string(70'000, static_cast<char>('a' + i % 26));
    journal->append(part, 1);
    all += part;
    journal->sent_all_but(all.size());  // the socket has taken nothing
  }
  EXPECT_EQ(connection.open()->unsent(connection.server), all);
}

// A whole reply that reaches into the next lap of the ring, up to pages that are not freed yet.
TEST(ConnectionJournal, KeepsTheNextLap) {
  constexpr size_t kRing = size_t{16} << 20;
  for (const size_t before : {size_t{1}, size_t{4096}, size_t{60'000}, size_t{65'535}}) {
    const Connection connection;
    const int bytes = 4096;  // so that the system takes little
    ::setsockopt(connection.server, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    auto journal = connection.open();
    std::string reply(before, 'b');
    const auto send = [&](std::string_view text) {
      const ssize_t taken = ::send(connection.server, text.data(), text.size(), MSG_DONTWAIT);
      EXPECT_GT(taken, 0);
      return static_cast<size_t>(std::max<ssize_t>(taken, 0));
    };
    const auto read = [&](size_t count) {
      std::string text(count, '\0');
      EXPECT_EQ(::recv(connection.client, text.data(), count, MSG_WAITALL),
                static_cast<ssize_t>(count));
    };
    journal->append(reply, 1);
    size_t sent = 0;
    while (sent < before) {
      const size_t taken = send(std::string_view(reply).substr(sent));
      read(taken);
      sent += taken;
    }
    journal->sent_all_but(0);
    for (size_t i = 0; reply.size() < kRing; ++i) reply += "the next " + std::to_string(i);
    reply.resize(kRing - 1);
    journal->append(reply, 1);
    size_t taken = 0;
    while (taken < 300'000) {
      const size_t more = send(std::string_view(reply).substr(taken, 4096));
      read(more);
      taken += more;
      journal->sent_all_but(reply.size() - taken);
    }
    EXPECT_TRUE(journal->unsent(connection.server) == reply.substr(taken)) << before;
  }
}

// Its offsets are used to read memory.
TEST(ConnectionJournal, ASpoiledOneIsRefused) {
  for (size_t at = 0; at < 128; at += 4) {
    const Connection connection;
    connection.open()->add_record("a record");
    const uint32_t wrong = 0xfffffff0;
    ASSERT_EQ(::pwrite(connection.memory, &wrong, sizeof(wrong), static_cast<off_t>(at)),
              static_cast<ssize_t>(sizeof(wrong)));
    const auto opened = ConnectionJournal::open(::dup(connection.memory), connection.server);
    if (!opened.ok()) continue;
    EXPECT_LE((*opened)->records().size(), 1u);
    EXPECT_LE((*opened)->input().size(), size_t{40} << 20);
  }
  const Connection connection;
  connection.open()->add_record("a record");
  const uint32_t length = 1000;  // of the record
  constexpr off_t kRecords = 4096 + (off_t{56} << 20);
  ASSERT_EQ(::pwrite(connection.memory, &length, sizeof(length), kRecords), 4);
  EXPECT_FALSE(ConnectionJournal::open(::dup(connection.memory), connection.server).ok());
}

}  // namespace
}  // namespace wideep::server
