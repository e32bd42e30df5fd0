// SPDX-License-Identifier: Apache-2.0
//
// Directories like /proc and /sys, with the files that a test writes, stand for machines that no
// test runs on: both versions of control groups, limits of parents, groups that a container does
// not see, files that are missing or make no sense. Topologies are hwloc's made-up ones. A failure
// means that wideep plans more memory than the container has and is killed, or starts more threads
// than it has cores.
#include "base/machine.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "base/proc_file.h"
#include "base/scratch_directory.h"

namespace wideep::base {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

// Directories with the structure of /proc and /sys, which hold only the files that a test writes.
class FakeKernel : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = scratch_.file(path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string proc() const { return scratch_.file("proc"); }
  std::string sys() const { return scratch_.file("sys"); }
  ControlGroup control_group() const { return read_control_group(proc(), sys()); }

  ScratchDirectory scratch_;
};

constexpr uint64_t kGiB = uint64_t{1} << 30;
const std::string kGroups = "sys/fs/cgroup/";

TEST(ProcFile, CpuLists) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(parse_cpu_list("5"), ElementsAre(5));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("a,-,3-,1-0,2"), ElementsAre(2));
  EXPECT_THAT(parse_cpu_list("0-99999999999,7"), ElementsAre(7));
}

TEST_F(FakeKernel, FieldsAreFoundByTheirWholeName) {
  write("proc/meminfo", "MemTotalX: 1 kB\nMemTotal:   24684092 kB\nMem: oops\ninactive_file 77\n");
  const std::string file = proc() + "/meminfo";
  EXPECT_THAT(read_field(file, "MemTotal"), Optional(24684092));
  EXPECT_THAT(read_field(file, "inactive_file"), Optional(77));
  EXPECT_EQ(read_field(file, "Mem"), std::nullopt);
  EXPECT_EQ(read_field(file, "inactive"), std::nullopt);
  EXPECT_EQ(read_field(proc() + "/absent", "MemTotal"), std::nullopt);
}

TEST_F(FakeKernel, MissingFilesAreNoError) {
  const Machine machine = read_machine(proc(), sys());
  EXPECT_EQ(machine.memory_bytes, 0u);
  EXPECT_EQ(machine.control_group.memory_limit_bytes, std::nullopt);
  EXPECT_EQ(machine.control_group.cpus, std::nullopt);
  EXPECT_THAT(machine.allowed, IsEmpty());
  EXPECT_EQ(machine.usable_cores(), 1);
}

TEST_F(FakeKernel, ReadsTheMachine) {
  write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU 9000\nmodel\t\t: 2\n");
  write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
  write("proc/self/status", "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-1,3\n");
  write("sys/devices/system/cpu/online", "0-7\n");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n");
  write("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "1\n");
  write("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "0\n");
  const Machine machine = read_machine(proc(), sys());
  EXPECT_EQ(machine.processor, "Some CPU 9000");
  EXPECT_EQ(machine.memory_bytes, 2048u * 1024);
  EXPECT_EQ(machine.free_memory_bytes, 1024u * 1024);
  EXPECT_EQ(machine.usable_memory_bytes(), 1024u * 1024);
  EXPECT_THAT(machine.allowed, ElementsAre(0, 1, 3));
  EXPECT_EQ(machine.num_processors, 8);
  EXPECT_EQ(machine.huge_pages.transparent, "madvise");
  ASSERT_EQ(machine.huge_pages.reserved.size(), 1u);
  EXPECT_EQ(machine.huge_pages.reserved[0].num_free, 1u);
  EXPECT_EQ(machine.huge_pages.reserved_bytes(), 6u << 20);
}

TEST_F(FakeKernel, ControlGroupVersion2) {
  write("proc/self/cgroup", "0::/batch/job\n");
  write(kGroups + "batch/job/memory.max", "max\n");
  write(kGroups + "batch/job/cpu.max", "max 100000\n");
  write(kGroups + "batch/memory.max", std::to_string(8 * kGiB) + "\n");
  write(kGroups + "batch/memory.current", std::to_string(6 * kGiB) + "\n");
  write(kGroups + "batch/memory.stat", "anon 5\ninactive_file " + std::to_string(kGiB) + "\n");
  write(kGroups + "batch/cpu.max", "150000 100000\n");
  EXPECT_THAT(control_group().memory_limit_bytes, Optional(8 * kGiB));
  EXPECT_THAT(control_group().memory_free_bytes, Optional(3 * kGiB));
  EXPECT_THAT(control_group().cpus, Optional(1.5));
}

TEST_F(FakeKernel, GroupWithTheLeastFreeMemoryCounts) {
  write("proc/self/cgroup", "0::/a/b\n");
  write(kGroups + "a/memory.max", std::to_string(8 * kGiB));
  write(kGroups + "a/memory.current", std::to_string(7 * kGiB));
  write(kGroups + "a/b/memory.max", std::to_string(4 * kGiB));
  write(kGroups + "a/b/memory.current", std::to_string(2 * kGiB));
  EXPECT_THAT(control_group().memory_limit_bytes, Optional(8 * kGiB));
  EXPECT_THAT(control_group().memory_free_bytes, Optional(kGiB));
}

TEST_F(FakeKernel, UsageAboveTheLimitLeavesNoFreeMemory) {
  write("proc/self/cgroup", "0::/\n");
  write(kGroups + "memory.max", "1000");
  write(kGroups + "memory.current", "5000");
  EXPECT_THAT(control_group().memory_free_bytes, Optional(0u));
}

TEST_F(FakeKernel, ControlGroupVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/docker/1\n4:cpuset,memory:/docker/1\n1:name=x:/y\n");
  write(kGroups + "memory/docker/1/memory.limit_in_bytes", std::to_string(2 * kGiB));
  write(kGroups + "memory/docker/1/memory.usage_in_bytes", std::to_string(kGiB));
  write(kGroups + "memory/docker/1/memory.stat", "inactive_file 1\ntotal_inactive_file 1024\n");
  write(kGroups + "memory/memory.limit_in_bytes", "9223372036854771712\n");
  write(kGroups + "cpu,cpuacct/docker/1/cpu.cfs_quota_us", "400000\n");
  write(kGroups + "cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  write(kGroups + "cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write(kGroups + "cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_THAT(control_group().memory_limit_bytes, Optional(2 * kGiB));
  EXPECT_THAT(control_group().memory_free_bytes, Optional(kGiB + 1024));
  EXPECT_THAT(control_group().cpus, Optional(4.0));
}

// Docker without a control group namespace: the path is the host's, the mount is the container's.
TEST_F(FakeKernel, InvisibleGroupGetsTheLimitsOfItsParents) {
  write("proc/self/cgroup", "4:memory:/docker/1234\n");
  write(kGroups + "memory/memory.limit_in_bytes", "4096");
  EXPECT_THAT(control_group().memory_limit_bytes, Optional(4096u));
}

TEST_F(FakeKernel, MalformedFilesSetNoLimit) {
  write("proc/self/cgroup", "nonsense\n0:\n:::\n4:memory:/\n0::/\n");
  write(kGroups + "memory/memory.limit_in_bytes", "lots");
  write(kGroups + "cpu.max", "many 100000");
  write("sys/kernel/mm/transparent_hugepage/enabled", "]what[");
  EXPECT_EQ(control_group().memory_limit_bytes, std::nullopt);
  EXPECT_EQ(control_group().cpus, std::nullopt);
  EXPECT_EQ(read_machine(proc(), sys()).huge_pages.transparent, "");
}

TEST(Topology, CoresNodesAndCaches) {
  const Topology topology =
      read_topology("numa:2(memory=1GB) l3:1(size=8MB) core:3 l1:1(size=64kB) pu:2");
  EXPECT_EQ(topology.numa_node_bytes.size(), 2u);
  EXPECT_EQ(topology.numa_node_bytes.at(0), 1000000000u);
  ASSERT_EQ(topology.cores.size(), 6u);
  EXPECT_THAT(topology.cores[5], ElementsAre(10, 11));
  ASSERT_EQ(topology.caches.size(), 2u);
  EXPECT_EQ(topology.caches[1].level, 3);
  EXPECT_EQ(topology.caches[1].num_cores, 3);
}

TEST(Topology, InvalidDescriptionGivesAnEmptyTopology) {
  EXPECT_THAT(read_topology("pancake").cores, IsEmpty());
}

TEST(Machine, UsableCoresAreBoundedByAffinityAndQuota) {
  Machine machine;
  machine.topology.cores = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  machine.allowed = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(machine.usable_cores(), 4);
  machine.allowed = {1, 2, 3};
  EXPECT_EQ(machine.usable_cores(), 2);
  machine.control_group.cpus = 1.5;
  EXPECT_EQ(machine.usable_cores(), 1);
  machine.control_group.cpus = 0.25;
  EXPECT_EQ(machine.usable_cores(), 1);
}

TEST(Machine, UsableMemoryIsBoundedByTheControlGroup) {
  Machine machine;
  machine.free_memory_bytes = 100;
  EXPECT_EQ(machine.usable_memory_bytes(), 100u);
  machine.control_group.memory_free_bytes = 60;
  EXPECT_EQ(machine.usable_memory_bytes(), 60u);
  machine.control_group.memory_free_bytes = 200;
  EXPECT_EQ(machine.usable_memory_bytes(), 100u);
}

// Values that are positive on every machine.
TEST(Machine, ReadsTheMachineOfTheTest) {
  const Machine machine = read_machine();
  EXPECT_GT(machine.memory_bytes, 0u);
  EXPECT_LE(machine.free_memory_bytes, machine.memory_bytes);
  EXPECT_GE(machine.num_processors, static_cast<int>(machine.allowed.size()));
  EXPECT_FALSE(machine.topology.cores.empty());
  EXPECT_FALSE(machine.topology.numa_node_bytes.empty());
}

}  // namespace
}  // namespace wideep::base
