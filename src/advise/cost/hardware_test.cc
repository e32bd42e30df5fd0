// SPDX-License-Identifier: Apache-2.0
//
// Mistakes are made in a small valid file, one at a time: each complaint has to name the key, some
// also the line. A description with every optional part set must be read back equal: a key that
// only one side knows would be lost in the file that `wideep doctor --write-hardware` makes. Every
// shipped machine has to pass the reader.
#include "cost/hardware.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace wideep::cost {
namespace {

using testing::HasSubstr;

constexpr const char* kFile = R"(name: example
devices_per_node: 8
processors: 100
memory: {bytes: 80e9, bandwidth: 3e12}
peak: {bf16: 1e15, fp8: 2e15}
node_link: {latency: 1e-5, bandwidth: 4e11, ranks: 8}
network: {latency: 2e-5, bandwidth: 5e10}
kernels:
  experts: {overhead: 4e-5, memory: 0.9, compute: 0.5, row_traffic: 2, tile: 64}
  dense: {overhead: 4e-5, memory: 0.9, compute: 0.5, row_traffic: 2, tile: 64}
  attention: {overhead: 1e-5, memory: 0.7, compute: 0.4}
  iteration: 1e-3
  dispatch: {overhead: 0, latency: 1.1, link: 0.7, serial: 2e-6}
  combine: {overhead: 0, latency: 1.1, link: 0.7, serial: 2e-7}
  bulk_dispatch: {overhead: 3e-5, latency: 0, link: 0.7, serial: 1e-11}
  bulk_combine: {overhead: 4e-5, latency: 0, link: 0.7, serial: 1e-11}
)";

std::string replaced(std::string_view from, std::string_view to) {
  std::string text = kFile;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string complaint(std::string_view from, std::string_view to) {
  const auto hardware = parse_hardware(replaced(from, to), "machine.yaml");
  EXPECT_FALSE(hardware.ok()) << from << " -> " << to;
  return hardware.ok() ? "" : hardware.status().message();
}

TEST(Hardware, IsReadFromAFile) {
  const auto hardware = parse_hardware(kFile, "machine.yaml");
  ASSERT_TRUE(hardware.ok()) << hardware.status().message();
  EXPECT_EQ(hardware->device, "example");
  EXPECT_EQ(hardware->peak.at(kernels::WeightFormat::kFp8), 2e15);
  EXPECT_FALSE(hardware->supports(kernels::WeightFormat::kNvfp4));
  EXPECT_EQ(hardware->node_link_ranks, 8);
  EXPECT_EQ(hardware->experts.tile, 64);
  EXPECT_EQ(hardware->host_link.bandwidth, 0.0);
}

// The two GPUs of a GB200 superchip share the link to their Grace; PCIe is each GPU's own.
TEST(Hardware, DevicesShareTheLinkToTheirHost) {
  EXPECT_EQ(shipped_hardware("gb200")->host_bandwidth(), 225e9);
  EXPECT_EQ(shipped_hardware("h100_sxm")->host_bandwidth(), 64e9);
  EXPECT_THAT(
      complaint("kernels:\n", "host_link: {latency: 0, bandwidth: 1e10, ranks: 9}\nkernels:\n"),
      HasSubstr("host_link: is shared by 9 ranks, but a node has 8 devices"));
}

// People copy it.
TEST(Hardware, ExampleInTheHeaderIsOne) {
  constexpr std::string_view kMargin = "//   ";
  std::ifstream header(WIDEEP_SOURCE_DIR "/src/advise/cost/hardware.h");
  std::string example;
  for (std::string line; std::getline(header, line);) {
    if (line.starts_with(kMargin)) example += line.substr(kMargin.size()) + "\n";
  }
  const auto hardware = parse_hardware(example, "hardware.h");
  ASSERT_TRUE(hardware.ok()) << hardware.status().message() << "\n" << example;
  const auto shipped = shipped_hardware(hardware->name);
  ASSERT_TRUE(shipped.ok()) << shipped.status().message();
  EXPECT_EQ(hardware->memory_bytes, shipped->memory_bytes);
  EXPECT_EQ(hardware->node_link, shipped->node_link);
  EXPECT_EQ(hardware->errors, KernelErrors());
  EXPECT_EQ(hardware->range, shipped->range);
}

TEST(Hardware, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(complaint("processors: 100\n", ""), HasSubstr("processors: missing"));
  EXPECT_THAT(complaint("bandwidth: 3e12", "bandwidth: 0"),
              HasSubstr("machine.yaml:4: memory.bandwidth: expected a number"));
  EXPECT_THAT(complaint("fp8: 2e15", "fp9: 2e15"), HasSubstr("peak.fp9: is no format"));
  EXPECT_THAT(complaint("ranks: 8", "ranks: 4"), HasSubstr("node_link: joins 4 ranks, but a node"));
  EXPECT_THAT(complaint("bandwidth: 5e10", "bandwidth: 5e11"), HasSubstr("network: is faster"));
  EXPECT_THAT(complaint("bandwidth: 5e10", "bandwidth: 5e10, message: 1e-5"),
              HasSubstr("network: has seconds of a core for a message"));
  EXPECT_THAT(complaint("bandwidth: 4e11", "bandwidth: 4e13"), HasSubstr("node_link: is faster"));
  EXPECT_THAT(complaint("tile: 64", "tiles: 64"), HasSubstr("kernels.experts.tile"));
  const std::string range = "name: example\nrange: {hidden_from: 512, hidden_to: ";
  EXPECT_THAT(complaint("name: example", range + "256, tokens: 8, ranks: 2, formats: bf16}"),
              HasSubstr("range.hidden_to: is below hidden_from"));
  EXPECT_THAT(complaint("name: example", range + "1024, tokens: 8, ranks: 2, formats: bf17}"),
              HasSubstr("range.formats: 'bf17' is no format of weights"));
  EXPECT_THAT(complaint("name: example", "names: example"), HasSubstr("name"));
}

TEST(Hardware, ConstantsOfAFormatNeedItsPeak) {
  const std::string kernel = "{overhead: 0, memory: 1, compute: 1, row_traffic: 1, tile: 8}";
  for (const std::string key : {"formats", "formats_of_all_cores"}) {
    const auto of = [&](const std::string& format) {
      return "kernels:\n  " + key + ": {" + format + ": {experts: " + kernel +
             ", dense: " + kernel + "}}\n";
    };
    EXPECT_THAT(
        complaint("kernels:\n", of("int8")),
        HasSubstr("machine.yaml:9: kernels." + key + ": has constants of int8, which has no peak"));
    const auto with_peak = parse_hardware(replaced("kernels:\n", of("fp8")), "machine.yaml");
    EXPECT_TRUE(with_peak.ok()) << with_peak.status().message();
  }
}

TEST(Hardware, NodesNeedANetwork) {
  std::string text =
      replaced("network: {latency: 2e-5, bandwidth: 5e10}\n", "divisible: true\nnodes: 4\n");
  text.replace(text.find("bandwidth: 3e12"), 15, "bandwidth: 3e12, node_bandwidth: 2e13");
  const auto hardware = parse_hardware(text, "machine.yaml");
  ASSERT_FALSE(hardware.ok());
  EXPECT_THAT(hardware.status().message(), HasSubstr("nodes: 4 of them need a network"));
}

TEST(Hardware, IsWrittenAsItIsRead) {
  auto hardware = parse_hardware(kFile, "machine.yaml");
  ASSERT_TRUE(hardware.ok());
  const auto again = [&] {
    const auto read = parse_hardware(hardware_text(*hardware), "again.yaml");
    EXPECT_TRUE(read.ok()) << read.status().message();
    return *read;
  };
  EXPECT_EQ(again(), *hardware);
  hardware->divisible = true;
  hardware->node_bandwidth = 2e13;
  hardware->disk_bandwidth = 3.5e9;
  hardware->nodes = 4;
  hardware->cached_bandwidth = {{1e6, 1e11}, {1e8, 5e10}};
  hardware->cached_node_bandwidth = {{1e6, 2e11}};
  hardware->network.message = 2e-5;
  hardware->host_link = {.latency = 1e-6, .bandwidth = 1e10};
  hardware->host_link_ranks = 2;
  hardware->of_formats[kernels::WeightFormat::kFp8] = {.experts = {.overhead = 1e-6, .tile = 8},
                                                       .dense = {.compute = 0.25}};
  hardware->of_all_cores[kernels::WeightFormat::kBf16] = {.experts = {.activation = 3.0},
                                                          .dense = {.matrix = 1e-6}};
  hardware->turns_loss = 0.125;
  hardware->errors = {.experts = 0.2, .exchange = 0.3};
  hardware->shared_reads = 0.5;
  hardware->range = {.min_hidden = 192,
                     .max_hidden = 2048,
                     .max_tokens = 1024,
                     .max_ranks = 8,
                     .formats = {kernels::WeightFormat::kBf16, kernels::WeightFormat::kFp8}};
  EXPECT_EQ(again(), *hardware);
}

TEST(Hardware, ReadsCachedBytesFaster) {
  Hardware hardware{.memory_bandwidth = 1.0, .node_bandwidth = 2.0};
  EXPECT_EQ(hardware.bandwidth_of(1e6), 1.0);
  EXPECT_EQ(hardware.node_bandwidth_of(1e6), 2.0);
  hardware.cached_bandwidth = {{1e6, 100.0}, {1e8, 50.0}};
  EXPECT_EQ(hardware.bandwidth_of(1.0), 100.0);
  EXPECT_NEAR(hardware.bandwidth_of(1e7), 75.0, 1e-9);
  EXPECT_EQ(hardware.bandwidth_of(1e9), 50.0);
}

TEST(ShippedHardware, IsComplete) {
  EXPECT_THAT(shipped_hardware_names(), testing::Contains("h100_sxm"));
  for (const std::string& name : shipped_hardware_names()) {
    const auto hardware = shipped_hardware(name);
    ASSERT_TRUE(hardware.ok()) << hardware.status().message();
    EXPECT_EQ(hardware->name, name);
  }
  for (const std::string name : {"h100", "h200", "b200"}) {
    EXPECT_EQ(shipped_hardware(name).value(), shipped_hardware(name + "_sxm").value()) << name;
  }
  const auto unknown = shipped_hardware("h100_sxn");
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), HasSubstr("did you mean 'h100_sxm'"));
}

}  // namespace
}  // namespace wideep::cost
