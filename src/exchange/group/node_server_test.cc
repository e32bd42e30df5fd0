// SPDX-License-Identifier: Apache-2.0
//
// The server's side with connections that a test makes by hand; tests/command_nodes_test.cc has
// whole services.
#include "group/node_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <deque>
#include <future>
#include <memory>
#include <thread>

#include "base/try.h"
#include "group/node_client.h"

namespace wideep::transport {
namespace {

using namespace std::chrono_literals;
using Event = NodeServer::Event;
using Kind = NodeMessage::Kind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const ClusterKey kKey("a secret of the cluster");

struct Service {
  explicit Service(int num_nodes, std::vector<uint64_t> own = {100, 4},
                   const ClusterKey& key = kKey, int num_needed = 0)  // 0: all
      : server(std::move(*NodeServer::listen(*resolve("127.0.0.1", 0), num_nodes, key))) {
    const int needed = num_needed > 0 ? num_needed : num_nodes;
    agreeing = std::thread(
        [this, own, needed] { min = *server->agree_on(needed, own, [](const auto&) {}); });
  }
  ~Service() { agreed(); }
  void agreed() {
    if (agreeing.joinable()) agreeing.join();
  }
  // Lets the server look, unless it still agrees, on its own thread. What happens comes with
  // next().
  void drive() {
    if (agreeing.joinable()) return;
    while (auto event = server->next_event()) events.push_back(std::move(*event));
  }
  // The next event within the limit.
  std::optional<Event> next(std::chrono::milliseconds limit = 5s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (;;) {
      drive();
      if (!events.empty()) break;
      if (std::chrono::steady_clock::now() >= end) return std::nullopt;
      std::this_thread::sleep_for(1ms);
    }
    Event event = std::move(events.front());
    events.pop_front();
    return event;
  }
  std::unique_ptr<NodeServer> server;
  std::vector<uint64_t> min;
  std::thread agreeing;
  std::deque<Event> events;
};

// Runs the call on another thread while the server looks.
template <typename Call>
auto beside(Service& service, Call call) {
  auto result = std::async(std::launch::async, call);
  while (result.wait_for(1ms) != std::future_status::ready) service.drive();
  return result.get();
}

struct Node {
  Node(Service& service, int node, const ClusterKey& key = kKey) {
    Result<int> socket = beside(
        service, [&] { return connect_as_node(service.server->address(), key, node, [] {}); });
    EXPECT_TRUE(socket.ok()) << socket.status().message();
    if (!socket.ok()) return;
    stream = NodeStream(*socket);
    first = next(&service);
    EXPECT_TRUE(first);
  }
  // The next message that is no pulse.
  std::optional<NodeMessage> next(Service* driven = nullptr) {
    const auto end = std::chrono::steady_clock::now() + 5s;
    while (std::chrono::steady_clock::now() < end && !stream.is_broken()) {
      if (driven != nullptr) driven->drive();
      auto message = stream.next();
      if (message && message->kind != Kind::kPulse) return message;
      std::this_thread::sleep_for(1ms);
    }
    return std::nullopt;
  }
  NodeStream stream;
  std::optional<NodeMessage> first;
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
  Node one(service, 1), two(service, 2);
  one.stream.send({.kind = Kind::kNumbers, .numbers = {120, 3}});
  two.stream.send({.kind = Kind::kNumbers, .numbers = {90, 8}});
  const auto welcome = one.next();
  ASSERT_TRUE(welcome);
  EXPECT_THAT(welcome->numbers, ElementsAre(service.server->service(), 90u, 3u));
  service.agreed();
  EXPECT_THAT(service.min, ElementsAre(90u, 3u));
}

// With --start-ranks a service does not wait for nodes whose ranks it does not begin with.
TEST(NodeServer, BeginsWhenTheNodesAreThereThatItNeeds) {
  Service service(4, {100, 4}, kKey, 2);
  Node three(service, 3);  // is there early: what it has counts
  three.stream.send({.kind = Kind::kNumbers, .numbers = {90, 8}});
  EXPECT_FALSE(service.next(200ms));
  ASSERT_EQ(three.stream.next(), std::nullopt);  // node 1 is missing
  Node one(service, 1);
  ASSERT_NO_FATAL_FAILURE(come_up(service, one, {120, 8}));
  EXPECT_THAT(service.min, ElementsAre(90u, 4u));
  EXPECT_EQ(three.next(&service)->kind, Kind::kWelcome);
  Node two(service, 2);
  two.stream.send({.kind = Kind::kNumbers, .numbers = {95, 9}});
  const auto welcome = two.next(&service);
  ASSERT_TRUE(welcome);
  EXPECT_THAT(welcome->numbers, ElementsAre(service.server->service(), 90u, 4u));
}

// A pod that replaces node 0 has another address, and its name has none for a while.
TEST(NodeClient, AsksForTheAddressBeforeEachAttempt) {
  Service service(2);
  int asked = 0;
  const auto where = [&]() -> Result<PeerAddress> {
    switch (++asked) {
      case 1:
        return invalid_input("'node0' is no address");
      case 2:
        return resolve("127.0.0.1", 1);  // nobody listens
      default:
        return service.server->address();
    }
  };
  auto client = NodeClient::connect(where, kKey, 1, [](const auto&) {});
  ASSERT_TRUE(client.ok()) << client.status().message();
  EXPECT_EQ(asked, 3);
  const auto min = client->agree_on({80, 9});
  ASSERT_TRUE(min.ok()) << min.status().message();
  EXPECT_THAT(*min, ElementsAre(80u, 4u));
}

// A node of another process, which writes an "s" to `told` when it has got a stop signal. After the
// service it takes one more signal, and ends with how it has ended.
constexpr int kFault = 100;  // else
[[noreturn]] void run_node(const PeerAddress& address, int told) {
  const auto where = [&]() -> Result<PeerAddress> { return address; };
  auto client = NodeClient::connect(where, kKey, 1, [](const auto&) {});
  if (!client.ok() || !client->agree_on({80, 9}).ok()) ::_exit(kFault + 1);
  client->present(kSettings);
  client->on_stop([&](int) { [[maybe_unused]] const auto n = ::write(told, "s", 1); });
  auto memory = SharedMemory::create(2, 4096);
  if (!memory.ok()) ::_exit(kFault + 2);
  const NodeClient::Options options{
      .group = {.num_ranks = 2},
      .place = {.nodes = NodeMap::even(2, 2), .node = 1, .here = client->here()},
      .can_go_on = {},
      .before_epoch = {},
      .after_death = {}};
  const auto ended = client->run(options, [](Seat&) { return Status(); }, *memory);
  ::raise(SIGTERM);
  ::_exit(ended.ok() ? static_cast<int>(*ended) : kFault + 3);
}

int exit_code_of(pid_t process) {
  int how = 0;
  if (::waitpid(process, &how, 0) != process) return -1;
  return WIFEXITED(how) ? WEXITSTATUS(how) : -WTERMSIG(how);
}

// A node that waits for the end of a service that ends, too, does not wait for the next one if that
// dies meanwhile: it has been asked to end.
TEST(NodeClient, AStopSignalCountsWhereTheServiceDies) {
  Service service(2);
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const PeerAddress address = service.server->address();
  const pid_t process = ::fork();
  if (process == 0) run_node(address, told[1]);
  ::close(told[1]);
  service.agreed();
  service.server->set_settings(kSettings);
  const auto up = service.next();
  ASSERT_TRUE(up);
  ASSERT_EQ(up->kind, Event::Kind::kUp);
  service.server->send(1, {.kind = Kind::kStopping});
  ::kill(process, SIGTERM);
  char said = 0;
  EXPECT_EQ(::read(told[0], &said, 1), 1);
  ::close(told[0]);
  service.server->forget();  // its connections end, without a word
  EXPECT_EQ(exit_code_of(process), static_cast<int>(NodeClient::Ended::kStopped));
}

// Who stops all nodes one after the other reaches this one when it has just heard that node 0 has
// ended.
TEST(NodeClient, AStopSignalAfterTheServiceChangesNothing) {
  Service service(2);
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const PeerAddress address = service.server->address();
  const pid_t process = ::fork();
  if (process == 0) run_node(address, told[1]);
  ::close(told[0]);
  ::close(told[1]);
  service.agreed();
  service.server->set_settings(kSettings);
  const auto up = service.next();
  ASSERT_TRUE(up);
  ASSERT_EQ(up->kind, Event::Kind::kUp);
  service.server->send(1, {.kind = Kind::kFinished});
  EXPECT_EQ(exit_code_of(process), static_cast<int>(NodeClient::Ended::kFinished));
}

TEST(NodeServer, SaysWhoIsLostAndWhoHasComeBack) {
  Service service(2);
  {
    Node node(service, 1);
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
  Node node(service, 1);
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
  Node up(service, 1), welcomed(service, 2);
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
  Node wrong(service, 2);
  const auto refused = wrong.first;
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, Kind::kRefused);
  EXPECT_THAT(refused->text, HasSubstr("expected 1 to 1"));
  Node node(service, 1);
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
  Node small(service, 1);
  small.stream.send({.kind = Kind::kNumbers, .numbers = {40, 4}});
  const auto little = small.next(&service);
  ASSERT_TRUE(little);
  EXPECT_EQ(little->kind, Kind::kRefused);
  EXPECT_THAT(little->text, HasSubstr("40 pages"));
}

// A connection that says what the test wants.
struct Stranger {
  explicit Stranger(const Service& service) : socket(*connect_to(service.server->address(), 1s)) {}
  ~Stranger() { ::close(socket); }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  void send(std::string_view bytes) const {
    EXPECT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // All that comes until the connection ends, or nothing more for a while.
  std::string receive(Service& service) const {
    std::string all;
    for (int idle = 0; idle < 50; ++idle) {
      service.drive();
      char bytes[4096];
      const ssize_t count = ::recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count == 0) return all;
      if (count > 0) all.append(bytes, static_cast<size_t>(count)), idle = 0;
      std::this_thread::sleep_for(1ms);
    }
    return all;
  }
  int socket;
};

// A service with node 1, which is up.
struct ServiceWithNode : Service {
  ServiceWithNode() : Service(2), node(*this, 1) { come_up(*this, node, {100, 4}); }
  // Whether it still is, after a while.
  bool is_up() {
    for (int i = 0; i < 20; ++i) {
      node.stream.send({.kind = Kind::kPulse});
      EXPECT_FALSE(next(10ms));
    }
    return server->is_up(1);
  }
  Node node;
};

TEST(NodeServer, StrangersAndGarbageHarmNobody) {
  ServiceWithNode service;
  const Stranger stranger(service);
  const std::string text(200, 'x');
  stranger.send(text);
  EXPECT_EQ(stranger.receive(service), "");
  EXPECT_TRUE(service.is_up());
  // A node that sends nonsense is lost.
  ASSERT_GT(::send(service.node.stream.socket(), text.data(), text.size(), MSG_NOSIGNAL), 0);
  const auto down = service.next();
  ASSERT_TRUE(down);
  EXPECT_EQ(down->kind, Event::Kind::kDown);
}

// It gets a nonce, and no word about the service.
TEST(NodeServer, WithoutTheKeyNothingIsTold) {
  ServiceWithNode service;
  for (const ClusterKey& key : {ClusterKey(), ClusterKey("another secret, as long")}) {
    const Greeting greeting{.who = {.node = 1}, .digest = fresh_nonce()};
    const Stranger stranger(service);
    stranger.send(memory_of(greeting));
    const std::string told = stranger.receive(service);
    ASSERT_EQ(told.size(), sizeof(Challenge));
    Challenge challenge;
    std::memcpy(&challenge, told.data(), sizeof(challenge));
    stranger.send(memory_of(proof_of_node(key, greeting, challenge)));
    EXPECT_EQ(stranger.receive(service), "");
    const auto node =
        beside(service, [&] { return connect_as_node(service.server->address(), key, 1, [] {}); });
    ASSERT_FALSE(node.ok());
    EXPECT_THAT(node.status().message(), HasSubstr("--cluster-key-file"));
  }
  EXPECT_TRUE(service.is_up());
}

// The proof that somebody has seen is of no use: the next challenge is another one.
TEST(NodeServer, AProofCannotBeUsedAgain) {
  ServiceWithNode service;
  const Greeting greeting{.who = {.node = 1}, .digest = fresh_nonce()};
  Digest proof;
  for (int i = 0; i < 2; ++i) {
    const Stranger each(service);
    each.send(memory_of(greeting));
    const std::string told = each.receive(service);
    ASSERT_EQ(told.size(), sizeof(Challenge));
    Challenge challenge;
    std::memcpy(&challenge, told.data(), sizeof(challenge));
    if (i == 0) proof = proof_of_node(kKey, greeting, challenge);
    each.send(memory_of(proof));
    EXPECT_EQ(each.receive(service).empty(), i == 1);
  }
}

// A node that is there is asked for by another process with its number.
TEST(NodeServer, AHealthyNodeIsNotDisplaced) {
  ServiceWithNode service;
  Node second(service, 1);
  ASSERT_TRUE(second.first);
  EXPECT_EQ(second.first->kind, Kind::kBusy);
  EXPECT_THAT(second.first->text, HasSubstr("node 1 is there already, from 127.0.0.1:"));
  EXPECT_TRUE(service.is_up());
}

TEST(NodeServer, AServiceThatDoesNotHaveTheKeyIsNotBelieved) {
  Service service(2, {100, 4}, ClusterKey("another secret, as long"));
  const auto node =
      beside(service, [&] { return connect_as_node(service.server->address(), kKey, 1, [] {}); });
  EXPECT_FALSE(node.ok());
  Node right(service, 1, ClusterKey("another secret, as long"));
  right.stream.send({.kind = Kind::kNumbers, .numbers = {100, 4}});
  EXPECT_EQ(right.next()->kind, Kind::kWelcome);
}

// Connections that say nothing cost few descriptors, and keep nobody out.
TEST(NodeServer, IdleConnectionsMakeRoom) {
  ServiceWithNode service;
  std::vector<std::unique_ptr<Stranger>> idle;
  for (int i = 0; i < 100; ++i) {
    idle.push_back(std::make_unique<Stranger>(service));
    service.drive();
  }
  std::vector<pollfd> fds;
  service.server->add_descriptors(&fds);
  EXPECT_LE(fds.size(), NodeArrivals::kMax + 4 + 2);
  Node second(service, 1);
  ASSERT_TRUE(second.first);
  EXPECT_EQ(second.first->kind, Kind::kBusy);
}

// The keeper has other things to do: it is not held by a node that sends without pause.
TEST(NodeServer, AFloodOfMessagesDoesNotHoldTheKeeper) {
  ServiceWithNode service;
  std::atomic<bool> over = false;
  std::thread flood([&] {
    std::vector<NodeMessage> pulses(1000);
    while (!over && !service.node.stream.is_broken()) {
      for (const NodeMessage& each : pulses) service.node.stream.send(each);
    }
  });
  const auto since = std::chrono::steady_clock::now();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(service.server->next_event());
  EXPECT_LT(std::chrono::steady_clock::now() - since, 3s);
  over = true;
  flood.join();
}

// Of a stranger's text nothing but printable characters reaches the log or other nodes.
TEST(NodeServer, TextOfNodesIsMadePrintable) {
  ServiceWithNode service;
  service.node.stream.send({.kind = Kind::kDied, .rank = 1, .text = "\x1b[2J\nservice healthy"});
  const auto died = service.next();
  ASSERT_TRUE(died);
  EXPECT_EQ(died->message.text, "\\x1b[2J\\nservice healthy");
}

// Without a key everybody could ask for one value after the other.
TEST(NodeServer, WithoutAKeyARefusalNamesNoValue) {
  Service service(2, {100, 4}, ClusterKey());
  Node node(service, 1, ClusterKey());
  node.stream.send({.kind = Kind::kNumbers, .numbers = {100, 4}});
  ASSERT_EQ(node.next()->kind, Kind::kWelcome);
  service.agreed();
  service.server->set_settings(kSettings);
  node.stream.send({.kind = Kind::kSettings, .text = to_text({{"model", "b"}})});
  const auto refused = node.next(&service);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->text, "nodes 0 and 1 differ in model; the log of node 0 says more");
}

TEST(NodeServer, GivesTheSocketOfPipes) {
  ServiceWithNode service;
  Greeting::Who who{.service = service.server->service(),
                    .kind = Greeting::Kind::kPipes,
                    .node = 1,
                    .rank = 3,
                    .serial = 9};
  const auto pipes = connect_for_pipes(service.server->address(), kKey, who);
  ASSERT_TRUE(pipes.ok());
  ASSERT_EQ(::send(*pipes, "abc", 3, MSG_NOSIGNAL), 3);
  const auto event = service.next(400ms);
  ASSERT_TRUE(event);
  ASSERT_EQ(event->kind, Event::Kind::kPipes);
  EXPECT_EQ(event->message.rank, 3);
  EXPECT_EQ(event->message.value, 9);
  char bytes[3] = {};
  EXPECT_EQ(::recv(event->socket, bytes, sizeof(bytes), 0), 3);  // all that followed
  ::close(event->socket);
  ::close(*pipes);
  // Of another service, or without the key.
  const auto other = connect_for_pipes(service.server->address(), ClusterKey(), who);
  ++who.service;
  const auto stale = connect_for_pipes(service.server->address(), kKey, who);
  EXPECT_FALSE(service.next(100ms));
  ::close(*other);
  ::close(*stale);
}

TEST(NodeMessage, CarriesMembersAndTheirAddresses) {
  std::vector<PeerAddress> addresses(5);
  addresses[1] = *parse_address("10.0.0.1:5000");
  addresses[4] = *parse_address("[fe80::1]:6000");
  NodeMessage message{.kind = Kind::kEpoch};
  message.set_members({.epoch = 12, .ranks = {1, 4}}, addresses);
  const auto members = message.members(5);
  ASSERT_TRUE(members);
  EXPECT_EQ(members->epoch, 12u);
  EXPECT_THAT(members->ranks, ElementsAre(1, 4));
  EXPECT_THAT(message.addresses(5), ::testing::ContainerEq(addresses));
}

TEST(NodeMessage, MembersAreRanksOfTheWorld) {
  const auto are_members = [](std::vector<uint64_t> numbers) {
    const NodeMessage message{.kind = Kind::kEpoch, .numbers = std::move(numbers)};
    return message.members(4).has_value();
  };
  EXPECT_TRUE(are_members({0, 0, 0, 0, 3, 0, 0, 0}));
  EXPECT_FALSE(are_members({}));
  EXPECT_FALSE(are_members({0, 0, 0}));                           // cut
  EXPECT_FALSE(are_members({4, 0, 0, 0}));                        // no rank
  EXPECT_FALSE(are_members({(uint64_t{1} << 31) - 1, 0, 0, 0}));  //
  EXPECT_FALSE(are_members({(uint64_t{1} << 32), 0, 0, 0}));      // 0, if it were cut
  EXPECT_FALSE(are_members({1, 0, 0, 0, 1, 0, 0, 0}));            // twice
  EXPECT_FALSE(are_members({3, 0, 0, 0, 1, 0, 0, 0}));            // not ascending
}

// No byte of this process's memory goes with a message.
TEST(NodeStream, AMessageHasNoBytesBesideItsOwn) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  NodeStream stream(ends[0]);
  stream.send(
      {.kind = Kind::kLeft, .epoch = 0x01010101, .rank = 0x02020202, .value = 0x0303030303030303});
  std::array<unsigned char, 64> bytes = {};
  ASSERT_EQ(::recv(ends[1], bytes.data(), bytes.size(), MSG_DONTWAIT), 32);
  // kind, epoch, rank, 0 bytes of text, value, 0 numbers, 0.
  const unsigned char kind = static_cast<unsigned char>(Kind::kLeft);
  EXPECT_THAT(std::vector<unsigned char>(bytes.begin(), bytes.begin() + 32),
              ElementsAre(kind, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 3, 3, 3, 3, 3, 3, 3, 3,
                          0, 0, 0, 0, 0, 0, 0, 0));
  ::close(ends[1]);
}

}  // namespace
}  // namespace wideep::transport
