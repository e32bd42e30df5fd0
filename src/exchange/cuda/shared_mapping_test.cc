// SPDX-License-Identifier: Apache-2.0
//
// The ways of sharing device memory, with a driver that has what a test gives it, fails where a
// test wants it, and knows what has not been given back.
#include "cuda/shared_mapping.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "base/try.h"

namespace wideep::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;
constexpr int64_t kOtherProcess = -5;

class FakeDriver final : public MemoryDriver {
 public:
  explicit FakeDriver(SharingWays ways) : ways_(ways) {}

  // "create fabric handles", "map", …: fails whenever it is called.
  std::set<std::string> broken;
  uint64_t free_bytes = 1 << 20;
  // What is open: names of resources, by their numbers.
  std::multiset<std::string> open;
  std::vector<std::string> calls;

  Result<Abilities> abilities() override {
    WIDEEP_TRY(call("abilities"));
    return Abilities{"GPU 0 (fake)", ways_, free_bytes};
  }
  Result<uint64_t> whole_pages(SharingWays /*ways*/, uint64_t num_bytes) override {
    WIDEEP_TRY(call("whole_pages"));
    return (num_bytes + kPage - 1) / kPage * kPage;
  }
  Result<uint64_t> create(SharingWays ways, uint64_t num_bytes) override {
    EXPECT_EQ(num_bytes % kPage, 0u);
    WIDEEP_TRY(call("create " + describe(ways)));
    open.insert("memory");
    return ++number_;
  }
  Status export_handle(uint64_t memory, SharingWays way, MemoryHandle* to) override {
    WIDEEP_TRY(call("export " + describe(way)));
    if (way == kFileDescriptor) {
      to->file_descriptor = static_cast<int>(memory) + 100;
    } else {
      to->fabric[0] = static_cast<std::byte>(memory);
    }
    return {};
  }
  Result<uint64_t> import_handle(SharingWays way, const MemoryHandle& /*from*/) override {
    WIDEEP_TRY(call("import " + describe(way)));
    open.insert("memory");
    return ++number_;
  }
  Result<uint64_t> reserve(uint64_t num_bytes) override {
    WIDEEP_TRY(call("reserve"));
    EXPECT_EQ(num_bytes % kPage, 0u);
    open.insert("address");
    return ++number_ * kPage;
  }
  Status map(uint64_t /*address*/, uint64_t /*num_bytes*/, uint64_t /*memory*/) override {
    WIDEEP_TRY(call("map"));
    open.insert("mapping");
    return {};
  }
  Status allow_access(uint64_t /*address*/, uint64_t /*num_bytes*/) override {
    return call("allow_access");
  }
  Status unmap(uint64_t /*address*/, uint64_t /*num_bytes*/) override { return close("mapping"); }
  Status free_address(uint64_t /*address*/, uint64_t /*num_bytes*/) override {
    return close("address");
  }
  Status release(uint64_t /*memory*/) override { return close("memory"); }
  Result<uint64_t> allocate(uint64_t /*num_bytes*/) override {
    WIDEEP_TRY(call("allocate"));
    open.insert("allocation");
    return ++number_ * kPage;
  }
  Status free(uint64_t /*address*/) override { return close("allocation"); }
  Status export_peer(uint64_t address, MemoryHandle* to) override {
    WIDEEP_TRY(call("export_peer"));
    to->peer[0] = static_cast<std::byte>(address / kPage);
    return {};
  }
  Result<uint64_t> open_peer(const MemoryHandle& /*from*/) override {
    WIDEEP_TRY(call("open_peer"));
    open.insert("peer");
    return ++number_ * kPage;
  }
  Status close_peer(uint64_t /*address*/) override { return close("peer"); }
  Status enable_peer(int /*device*/) override { return call("enable_peer"); }

 private:
  Status call(const std::string& name) {
    calls.push_back(name);
    return broken.contains(name) ? failed("driver error in " + name) : Status{};
  }
  Status close(const std::string& resource) {
    const auto found = open.find(resource);
    EXPECT_NE(found, open.end()) << resource;
    if (found != open.end()) open.erase(found);
    return {};
  }

  SharingWays ways_;
  uint64_t number_ = 0;
};

constexpr SharingWays kAllWays[] = {kFabricHandle, kFileDescriptor, kPeerAccess};

// The ways of what a driver with these abilities creates, and the message if it does not.
std::pair<SharingWays, std::string> create(FakeDriver& driver, SharingWays allowed = kAnyWay,
                                           uint64_t num_bytes = 5000) {
  const auto made = SharedMapping::create(driver, num_bytes, allowed);
  return made.ok() ? std::pair(made->ways(), std::string())
                   : std::pair(SharingWays{0}, made.status().message());
}

TEST(SharedMappingTest, TakesFabricHandlesAndDescriptorsWhereTheDriverHasThem) {
  for (SharingWays ways = 1; ways <= kAnyWay; ++ways) {
    FakeDriver driver(ways);
    const SharingWays best = (ways & (kFabricHandle | kFileDescriptor)) != 0
                                 ? ways & (kFabricHandle | kFileDescriptor)
                                 : kPeerAccess;
    EXPECT_EQ(create(driver), std::pair(best, std::string()));
    EXPECT_TRUE(driver.open.empty());
  }
}

TEST(SharedMappingTest, GoesWithoutFabricHandlesIfTheMachineIsNotSetUpForThem) {
  FakeDriver driver(kAnyWay);
  driver.broken = {"create fabric handles, file descriptors", "create fabric handles"};
  EXPECT_EQ(create(driver), std::pair(kFileDescriptor, std::string()));
  driver.broken.insert("create file descriptors");
  EXPECT_EQ(create(driver), std::pair(kPeerAccess, std::string()));
  driver.broken.insert("allocate");
  EXPECT_THAT(create(driver).second,
              AllOf(HasSubstr("GPU 0 (fake) cannot share 5000 bytes"),
                    HasSubstr("fabric handles, file descriptors: driver error in create"),
                    HasSubstr("peer access: driver error in allocate")));
  EXPECT_TRUE(driver.open.empty());
}

TEST(SharedMappingTest, SaysWhatTheGpuSupportsAndWhatIsExpected) {
  FakeDriver driver(kFileDescriptor | kPeerAccess);
  EXPECT_THAT(
      create(driver, kFabricHandle).second,
      HasSubstr("it supports file descriptors, peer access, expected one of fabric handles"));
  FakeDriver none(0);
  EXPECT_THAT(create(none).second, HasSubstr("it supports none, expected one of"));
}

TEST(SharedMappingTest, RefusesMoreThanIsFree) {
  FakeDriver driver(kAnyWay);
  driver.free_bytes = 4999;
  EXPECT_THAT(create(driver).second,
              HasSubstr("5000 bytes on GPU 0 (fake), of which 4999 are free"));
  EXPECT_EQ(driver.calls, std::vector<std::string>{"abilities"});
}

TEST(SharedMappingTest, WithoutADriverTheErrorIsTheDrivers) {
  FakeDriver driver(kAnyWay);
  driver.broken = {"abilities"};
  EXPECT_EQ(create(driver).second, "driver error in abilities");
}

// Whatever fails, nothing stays behind.
TEST(SharedMappingTest, GivesAllBackAfterEveryError) {
  for (const char* broken : {"whole_pages", "reserve", "map", "allow_access"}) {
    FakeDriver driver(kFabricHandle | kFileDescriptor);
    driver.broken = {broken};
    EXPECT_THAT(create(driver).second, HasSubstr(broken));
    EXPECT_TRUE(driver.open.empty()) << broken;
  }
  FakeDriver owner(kFileDescriptor);
  const auto mine = SharedMapping::create(owner, 5000);
  ASSERT_TRUE(mine.ok());
  const auto handle = mine->handle();
  ASSERT_TRUE(handle.ok());
  for (const char* broken : {"import file descriptors", "reserve", "map", "allow_access"}) {
    FakeDriver driver(kFileDescriptor);
    driver.broken = {broken};
    EXPECT_THAT(SharedMapping::open(driver, *handle, 5000).status().message(),
                AllOf(HasSubstr("expected GPUs with peer access"), HasSubstr(broken)));
    EXPECT_TRUE(driver.open.empty()) << broken;
  }
}

MemoryHandle handle_of(FakeDriver& driver, std::optional<SharedMapping>* owner) {
  auto made = SharedMapping::create(driver, 5000);
  EXPECT_TRUE(made.ok());
  owner->emplace(std::move(*made));
  auto handle = (*owner)->handle();
  EXPECT_TRUE(handle.ok());
  return *handle;
}

TEST(SharedMappingTest, APeerTakesTheFirstWayThatWorks) {
  FakeDriver owner(kAnyWay);
  std::optional<SharedMapping> mine;
  const MemoryHandle handle = handle_of(owner, &mine);
  EXPECT_EQ(handle.ways, kFabricHandle | kFileDescriptor);
  EXPECT_EQ(handle.whole_bytes, 2 * kPage);

  FakeDriver peer(kAnyWay);
  {
    const auto theirs = SharedMapping::open(peer, handle, 5000);
    ASSERT_TRUE(theirs.ok()) << theirs.status().message();
    EXPECT_NE(theirs->address(), 0u);
  }
  EXPECT_THAT(peer.calls, ::testing::Contains("import fabric handles"));
  EXPECT_TRUE(peer.open.empty());

  peer.calls.clear();
  peer.broken = {"import fabric handles"};
  EXPECT_TRUE(SharedMapping::open(peer, handle, 5000).ok());
  EXPECT_THAT(peer.calls, ::testing::Contains("import file descriptors"));
  EXPECT_TRUE(peer.open.empty());

  FakeDriver old(kPeerAccess);
  EXPECT_THAT(SharedMapping::open(old, handle, 5000).status().message(),
              AllOf(HasSubstr("fabric handles: GPU 0 (fake) does not support them"),
                    HasSubstr("file descriptors: GPU 0 (fake) does not support them")));
}

TEST(SharedMappingTest, WithPeerAccessOnlyAProcessUsesAddressesAndOthersOpenHandles) {
  FakeDriver owner(kPeerAccess), peer(kPeerAccess);
  std::optional<SharedMapping> mine;
  MemoryHandle handle = handle_of(owner, &mine);
  EXPECT_EQ(handle.ways, kPeerAccess);
  {
    const auto theirs = SharedMapping::open(peer, handle, 5000);
    ASSERT_TRUE(theirs.ok());
    EXPECT_EQ(theirs->address(), mine->address());
    EXPECT_TRUE(peer.open.empty());
  }
  peer.broken = {"enable_peer"};
  EXPECT_THAT(SharedMapping::open(peer, handle, 5000).status().message(),
              HasSubstr("driver error in enable_peer"));
  handle.process = kOtherProcess;
  {
    const auto theirs = SharedMapping::open(peer, handle, 5000);
    ASSERT_TRUE(theirs.ok());
    EXPECT_EQ(peer.open, std::multiset<std::string>{"peer"});
  }
  EXPECT_TRUE(peer.open.empty());
  mine.reset();
  EXPECT_TRUE(owner.open.empty());
}

TEST(SharedMappingTest, RanksWithOtherShapesAreRefused) {
  FakeDriver owner(kAnyWay), peer(kAnyWay);
  std::optional<SharedMapping> mine;
  const MemoryHandle handle = handle_of(owner, &mine);
  EXPECT_THAT(SharedMapping::open(peer, handle, 5001).status().message(),
              HasSubstr("a peer shares 5000 bytes, expected 5001"));
  EXPECT_TRUE(peer.calls.empty());
}

TEST(SharedMappingTest, HandlesHaveTheWaysThatCanBeExported) {
  for (const SharingWays way : kAllWays) {
    FakeDriver owner(kAnyWay);
    std::optional<SharedMapping> mine;
    handle_of(owner, &mine);
    const auto handle = mine->handle(way);
    if (way == kPeerAccess) {
      EXPECT_THAT(handle.status().message(),
                  HasSubstr("shared by fabric handles, file descriptors, "
                            "not by peer access"));
    } else {
      ASSERT_TRUE(handle.ok());
      EXPECT_EQ(handle->ways, way);
    }
  }
  FakeDriver owner(kFabricHandle | kFileDescriptor);
  std::optional<SharedMapping> mine;
  handle_of(owner, &mine);
  owner.broken = {"export fabric handles"};
  EXPECT_EQ(mine->handle()->ways, kFileDescriptor);
  owner.broken.insert("export file descriptors");
  EXPECT_THAT(mine->handle().status().message(), HasSubstr("driver error in export"));
}

}  // namespace
}  // namespace wideep::cuda
