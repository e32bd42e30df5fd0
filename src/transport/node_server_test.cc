// SPDX-License-Identifier: Apache-2.0
//
// The server's side with connections that a test makes by hand; tests/command_nodes_test.cc has
// whole services.
#include "transport/node_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "base/try.h"

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;
using Event = NodeServer::Event;
using Kind = NodeMessage::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Service {
  explicit Service(int num_nodes, std::vector<uint64_t> own = {100, 4})
      : server(std::move(*NodeServer::listen(*resolve("127.0.0.1", 0), num_nodes))) {
    agreeing = std::thread([this, own] { least = *server->agree_on(own, [](const auto&) {}); });
  }
  ~Service() { agreed(); }
  void agreed() {
    if (agreeing.joinable()) agreeing.join();
  }
  // The next event within the limit.
  std::optional<Event> next(std::chrono::milliseconds limit = 5s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (std::chrono::steady_clock::now() < end) {
      if (auto event = server->next_event()) return event;
      std::this_thread::sleep_for(1ms);
    }
    return std::nullopt;
  }
  std::unique_ptr<NodeServer> server;
  std::vector<uint64_t> least;
  std::thread agreeing;
};

struct Node {
  Node(const Service& service, const Greeting& greeting)
      : stream(*connect_to(service.server->address(), 1s)) {
    EXPECT_EQ(::send(stream.socket(), &greeting, sizeof(greeting), MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof(greeting)));
  }
  // The next message that is no pulse.
  std::optional<NodeMessage> next(Service* driven = nullptr) {
    const auto end = std::chrono::steady_clock::now() + 5s;
    while (std::chrono::steady_clock::now() < end && !stream.is_broken()) {
      if (driven != nullptr) {
        EXPECT_FALSE(driven->server->next_event());
      }
      auto message = stream.next();
      if (message && message->kind != Kind::kPulse) return message;
      std::this_thread::sleep_for(1ms);
    }
    return std::nullopt;
  }
  NodeStream stream;
};

const Settings kSettings = {{"model", "a"}, {"text", std::string("with\0zero", 9)}};

// A node that is up.
void come_up(Service& service, Node& node, const std::vector<uint64_t>& numbers) {
  node.stream.send({.kind = Kind::kNumbers, .numbers = numbers});
  const auto welcome = node.next();
  ASSERT_TRUE(welcome);
  ASSERT_EQ(welcome->kind, Kind::kWelcome);
  service.agreed();
  service.server->set_settings(kSettings);
  node.stream.send({.kind = Kind::kSettings, .text = to_text(kSettings)});
  node.stream.send({.kind = Kind::kUp});
  const auto up = service.next();
  ASSERT_TRUE(up);
  ASSERT_EQ(up->kind, Event::Kind::kUp);
}

TEST(NodeServer, TakesTheLeastOfAllNodes) {
  Service service(3);
  Node one(service, {.node = 1}), two(service, {.node = 2});
  one.stream.send({.kind = Kind::kNumbers, .numbers = {120, 3}});
  two.stream.send({.kind = Kind::kNumbers, .numbers = {90, 8}});
  const auto welcome = one.next();
  ASSERT_TRUE(welcome);
  EXPECT_THAT(welcome->numbers, ElementsAre(service.server->service(), 90u, 3u));
  service.agreed();
  EXPECT_THAT(service.least, ElementsAre(90u, 3u));
}

TEST(NodeServer, SaysWhoIsLostAndWhoHasComeBack) {
  Service service(2);
  {
    Node node(service, {.node = 1});
    ASSERT_NO_FATAL_FAILURE(come_up(service, node, {100, 4}));
    EXPECT_TRUE(service.server->is_up(1));
    node.stream.send({.kind = Kind::kLeft, .epoch = 3, .rank = 5});
    const auto left = service.next();
    ASSERT_TRUE(left);
    EXPECT_EQ(left->kind, Event::Kind::kMessage);
    EXPECT_EQ(left->message.kind, Kind::kLeft);
    EXPECT_EQ(left->message.epoch, 3u);
    EXPECT_EQ(left->message.rank, 5);
  }
  auto down = service.next();
  ASSERT_TRUE(down);
  EXPECT_EQ(down->kind, Event::Kind::kDown);
  EXPECT_THAT(down->why, HasSubstr("ended"));
  Node node(service, {.node = 1});
  node.stream.send({.kind = Kind::kNumbers, .numbers = {100, 4}});
  ASSERT_EQ(node.next(&service)->kind, Kind::kWelcome);
  node.stream.send({.kind = Kind::kSettings, .text = to_text(kSettings)});
  node.stream.send({.kind = Kind::kUp});
  EXPECT_EQ(service.next()->kind, Event::Kind::kUp);
  // And then it is silent.
  const auto since = std::chrono::steady_clock::now();
  down = service.next();
  ASSERT_TRUE(down);
  EXPECT_EQ(down->kind, Event::Kind::kDown);
  EXPECT_THAT(down->why, HasSubstr("silent"));
  EXPECT_GE(std::chrono::steady_clock::now() - since, kNodePatience - 50ms);
}

// One that comes back while the service ends would wait for the next service.
TEST(NodeServer, SaysThatItHasEndedToNodesThatAreNotUpYet) {
  Service service(3);
  Node up(service, {.node = 1}), welcomed(service, {.node = 2});
  welcomed.stream.send({.kind = Kind::kNumbers, .numbers = {100, 4}});
  ASSERT_NO_FATAL_FAILURE(come_up(service, up, {100, 4}));
  ASSERT_EQ(welcomed.next()->kind, Kind::kWelcome);
  service.server->finish();
  for (Node* each : {&up, &welcomed}) {
    const auto last = each->next();
    ASSERT_TRUE(last);
    EXPECT_EQ(last->kind, Kind::kFinished);
  }
}

TEST(NodeServer, RefusesWithTheReason) {
  Service service(2);
  Node wrong(service, {.node = 2});
  const auto refused = wrong.next();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kRefused);
  EXPECT_THAT(refused->text, HasSubstr("expected 1 to 1"));
  Node node(service, {.node = 1});
  node.stream.send({.kind = Kind::kNumbers, .numbers = {100, 4}});
  ASSERT_EQ(node.next()->kind, Kind::kWelcome);
  service.agreed();
  service.server->set_settings(kSettings);
  node.stream.send({.kind = Kind::kSettings, .text = to_text({{"model", "b"}})});
  const auto other = node.next(&service);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->kind, Kind::kRefused);
  EXPECT_THAT(other->text, HasSubstr("nodes 0 and 1 differ in model: a and b"));
  // With half the memory of the others it cannot keep up.
  Node small(service, {.node = 1});
  small.stream.send({.kind = Kind::kNumbers, .numbers = {40, 4}});
  const auto little = small.next(&service);
  ASSERT_TRUE(little);
  EXPECT_EQ(little->kind, Kind::kRefused);
  EXPECT_THAT(little->text, HasSubstr("40 pages"));
}

TEST(NodeServer, StrangersAndGarbageHarmNobody) {
  Service service(2);
  Node node(service, {.node = 1});
  ASSERT_NO_FATAL_FAILURE(come_up(service, node, {100, 4}));
  const int stranger = *connect_to(service.server->address(), 1s);
  const std::string text(200, 'x');
  ASSERT_GT(::send(stranger, text.data(), text.size(), MSG_NOSIGNAL), 0);
  Node pipes(service, {.service = 1, .kind = Greeting::Kind::kPipes, .node = 1});  // not ours
  for (int i = 0; i < 20; ++i) {
    node.stream.send({.kind = Kind::kPulse});
    EXPECT_FALSE(service.next(10ms));
  }
  EXPECT_TRUE(service.server->is_up(1));
  ::close(stranger);
  // A node that sends nonsense is lost.
  ASSERT_GT(::send(node.stream.socket(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  const auto down = service.next();
  ASSERT_TRUE(down);
  EXPECT_EQ(down->kind, Event::Kind::kDown);
}

TEST(NodeServer, GivesTheSocketOfPipes) {
  Service service(2);
  Node node(service, {.node = 1});
  ASSERT_NO_FATAL_FAILURE(come_up(service, node, {100, 4}));
  Node pipes(service, {.service = service.server->service(),
                       .kind = Greeting::Kind::kPipes,
                       .node = 1,
                       .rank = 3,
                       .serial = 9});
  ASSERT_EQ(::send(pipes.stream.socket(), "abc", 3, MSG_NOSIGNAL), 3);
  const auto event = service.next(400ms);
  ASSERT_TRUE(event);
  ASSERT_EQ(event->kind, Event::Kind::kPipes);
  EXPECT_EQ(event->message.rank, 3);
  EXPECT_EQ(event->message.value, 9);
  char bytes[3] = {};
  EXPECT_EQ(::recv(event->socket, bytes, sizeof(bytes), 0), 3);  // all that followed
  ::close(event->socket);
}

TEST(NodeMessage, CarriesMembersAndTheirAddresses) {
  std::vector<PeerAddress> addresses(5);
  addresses[1] = *parse_address("10.0.0.1:5000");
  addresses[4] = *parse_address("[fe80::1]:6000");
  NodeMessage message{.kind = Kind::kEpoch};
  message.set_members({.epoch = 12, .ranks = {1, 4}}, addresses);
  const Members members = message.members();
  EXPECT_EQ(members.epoch, 12u);
  EXPECT_THAT(members.ranks, ElementsAre(1, 4));
  EXPECT_THAT(message.addresses(5), ::testing::ContainerEq(addresses));
}

}  // namespace
}  // namespace wideep::transport
