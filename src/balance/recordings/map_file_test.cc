// SPDX-License-Identifier: Apache-2.0
//
// Dumps of vLLM, SGLang and TensorRT-LLM in small: the same maps must come out under each engine's
// names and with or without layers. A number of experts may be guessed only where nothing says it,
// and an id larger than any model has is refused before it asks for memory. A failure means that
// check_maps judges maps which the engine does not have.
#include "recordings/map_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::recordings {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string complaint(std::string_view text, int num_experts = 0) {
  const auto maps = parse_map_json(text, "maps.json", num_experts, 0);
  return maps.ok() ? "" : maps.status().message();
}

TEST(MapFile, ReadsVllmsMaps) {
  const auto read = parse_map_json(R"({
    "logical_replica_count": [[1, 2], [2, 1]], "ep_size": 3,
    "logical_to_physical_map": [[[0, -1], [1, 2]], [[0, 2], [1, -1]]],
    "physical_to_logical_map": [[0, 1, 1], [0, 1, 0]]})",
                                   "maps.json", 0, 3);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->layers, ElementsAre(0, 1));
  EXPECT_EQ(read->maps[1].num_experts, 2);
  EXPECT_EQ(read->maps[1].ep_size, 3);
  EXPECT_FALSE(read->guessed_experts);
  EXPECT_THAT(read->maps[1].slot_to_expert, ElementsAre(0, 1, 0));
  EXPECT_THAT(read->maps[1].expert_to_slots, ElementsAre(ElementsAre(0, 2), ElementsAre(1, -1)));
  EXPECT_THAT(read->maps[0].replicas, ElementsAre(1, 2));
  EXPECT_THAT(read->not_read, ElementsAre("ep_size"));
}

TEST(MapFile, ReadsSglangsNamesAndOneLayer) {
  const auto read = parse_map_json(R"({"physical_to_logical_map": [0, 1, 1],
    "logical_to_all_physical_map": [[0], [1, 2]], "logical_to_all_physical_map_num_valid": [1, 2],
    "logical_to_rank_dispatch_physical_map": [0, 2], "physical_count": [3.0, 4, 5],
    "logical_count": [3, 9]})",
                                   "maps.json", 0, 0);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->layers, ElementsAre(0));
  EXPECT_THAT(read->maps[0].chosen_slot, ElementsAre(0, 2));
  EXPECT_THAT(read->maps[0].tokens_of_slot, ElementsAre(3, 4, 5));
  EXPECT_THAT(read->maps[0].tokens_of_expert, ElementsAre(3, 9));
}

TEST(MapFile, GuessesExpertsOnlyWhereNothingTells) {
  const auto guessed = parse_map_json(R"({"physical_to_logical_map": [[0, 4, 2]]})", "m", 0, 0);
  ASSERT_TRUE(guessed.ok());
  EXPECT_TRUE(guessed->guessed_experts);
  EXPECT_EQ(guessed->maps[0].num_experts, 5);
  const auto told = parse_map_json(R"({"physical_to_logical_map": [[0, 4, 2]]})", "m", 8, 0);
  ASSERT_TRUE(told.ok());
  EXPECT_FALSE(told->guessed_experts);
  EXPECT_EQ(told->maps[0].num_experts, 8);
}

TEST(MapFile, ReadsTensorRtLlmsYaml) {
  const base::ScratchDirectory directory;
  const std::string path = directory.file("balancer.yaml");
  ASSERT_TRUE(
      formats::write_file(
          path, "num_slots: 3\ninitial_global_assignments:\n  3: [0, 1, 1]\n  5: [1, 0, 0]\n")
          .ok());
  const auto read = read_map_file(path, 0, 0);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_THAT(read->layers, ElementsAre(3, 5));
  EXPECT_THAT(read->maps[1].slot_to_expert, ElementsAre(1, 0, 0));
  EXPECT_TRUE(read->guessed_experts);

  ASSERT_TRUE(
      formats::write_file(path, "num_slots: 4\ninitial_global_assignments:\n  3: [0, 1, 1]\n")
          .ok());
  EXPECT_THAT(read_map_file(path, 0, 0).status().message(),
              HasSubstr("initial_global_assignments.3: expected 4 slots (num_slots), found 3"));
  ASSERT_TRUE(
      formats::write_file(path, "initial_global_assignments:\n  3: [0, 9223372036854775807]\n")
          .ok());
  EXPECT_THAT(read_map_file(path, 0, 0).status().message(),
              HasSubstr("found 9223372036854775807 as the largest"));
  ASSERT_TRUE(formats::write_file(path, "num_slots: 4\n").ok());
  EXPECT_THAT(read_map_file(path, 0, 0).status().message(), HasSubstr("no layer to check"));
}

TEST(MapFile, BadFilesAreOneLine) {
  EXPECT_EQ(
      complaint("[]"),
      "maps.json: expected an object with the key physical_to_logical_map, found a list of 0");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": [[0, 1.5]]})"),
            "maps.json: physical_to_logical_map[0][1]: expected an integer, found 1.5");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": [[0], 3]})"),
            "maps.json: physical_to_logical_map[1]: expected a list of integers, found 3");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": []})"),
            "maps.json: physical_to_logical_map: expected a list of layers, found an empty one");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": [[0], [0]], "logical_count": [[5]]})"),
            "maps.json: logical_count: expected 2 layers as in physical_to_logical_map, found 1");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": [[0]], "logical_replica_count": [[1]],
                          "expert_count": [[1]]})"),
            "maps.json: logical_replica_count: says the same as expert_count; keep one of them");
  EXPECT_EQ(complaint(R"({"physical_to_logical_map": [[-1]]})"),
            "maps.json: expected expert ids from 0 to 1048575, found -1 as the largest");
  EXPECT_THAT(read_map_file("dump.pt", 0, 0).status().message(),
              HasSubstr("write tensors as JSON"));
}

}  // namespace
}  // namespace wideep::recordings
