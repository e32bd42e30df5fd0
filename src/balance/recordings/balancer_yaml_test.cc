// SPDX-License-Identifier: Apache-2.0
//
// TensorRT-LLM's file is read and written again byte for byte, and wideep's own keys must survive
// writing and reading. Every mistake has a line of its own, which names file and key and has no
// line break. A failure is a placement other than the file's, or a key without effect of which
// nobody was told.
#include "recordings/balancer_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "formats/files.h"

namespace wideep::recordings {
namespace {

using balance::ModelPlacement;
using balance::Placement;
using balance::ShareUpdate;
using balance::UpdatePolicyKind;
using testing::ElementsAre;
using testing::HasSubstr;

const MoeShape kShape{.moe_layers = {1, 2}, .num_experts = 4, .ep_size = 2};

constexpr const char* kGood =
    "num_slots: 6\n"
    "initial_global_assignments:\n"
    "  1: [1, 0, 2, 1, 2, 3]\n"
    "  2: [0, 1, 2, 3, 0, 1]\n"
    "layer_updates_per_iter: 0\n";

// The message of a file that must be refused.
std::string complaint_of(const std::string& text, const MoeShape& shape = kShape) {
  const Result<ModelPlacement> placement = parse_balancer_yaml(text, "lb.yaml", shape);
  if (placement.ok()) return "accepted";
  EXPECT_EQ(placement.status().code(), StatusCode::kInvalidInput);
  EXPECT_THAT(placement.status().message(), HasSubstr("lb.yaml"));
  EXPECT_THAT(placement.status().message(), testing::Not(HasSubstr("\n")));
  return placement.status().message();
}

TEST(BalancerYaml, UnusedSlotsOnlyIfAllowed) {
  const ModelPlacement model{
      .num_slots = 6,
      .layers = {{1, {4, 2, {1, 0, 2, 3, 0, -1}}}, {2, {4, 2, {0, 1, 2, 3, 0, 1}}}}};
  const std::string text = balancer_yaml_text(model);
  EXPECT_THAT(text, HasSubstr("# -1: an unused slot"));
  EXPECT_THAT(text, HasSubstr("  1: [1, 0, 2, 3, 0, -1]\n"));
  EXPECT_THAT(
      complaint_of(text),
      HasSubstr(
          "initial_global_assignments.1: slot 5: expected an expert id, found -1 (an unused slot"));
  MoeShape shape = kShape;
  shape.unused_slots = true;
  const Result<ModelPlacement> read = parse_balancer_yaml(text, "lb.yaml", shape);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, model);
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments:\n  1: [0, -2, 2, 3]\n"
                           "  2: [0, 1, 2, 3]\n",
                           shape),
              HasSubstr("slot 1: expected an expert id from 0 to 3, found -2"));
}

TEST(BalancerYaml, ReadsPlacements) {
  const Result<ModelPlacement> model = parse_balancer_yaml(kGood, "lb.yaml", kShape);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->num_slots, 6);
  EXPECT_EQ(model->layer_updates_per_iter, 0);
  ASSERT_EQ(model->layers.size(), 2u);
  EXPECT_EQ(model->layers.at(1), (Placement{4, 2, {1, 0, 2, 1, 2, 3}}));
  EXPECT_EQ(model->layers.at(2), (Placement{4, 2, {0, 1, 2, 3, 0, 1}}));
}

TEST(BalancerYaml, WritesTheSameBytesItReads) {
  const Result<ModelPlacement> model = parse_balancer_yaml(kGood, "lb.yaml", kShape);
  ASSERT_TRUE(model.ok());
  EXPECT_EQ(balancer_yaml_text(*model), kGood);
}

TEST(BalancerYaml, WritesAndReadsAFile) {
  const std::string path = testing::TempDir() + "/balancer_yaml_test.yaml";
  const Result<ModelPlacement> model = parse_balancer_yaml(kGood, "lb.yaml", kShape);
  ASSERT_TRUE(model.ok());
  ASSERT_TRUE(write_balancer_yaml(path, *model).ok());
  const Result<ModelPlacement> again = read_balancer_yaml(path, kShape);
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *model);
  std::filesystem::remove(path);
}

TEST(BalancerYaml, WithoutAssignmentsEveryLayerIsDefault) {
  const Result<ModelPlacement> model =
      parse_balancer_yaml("num_slots: 6\nlayer_updates_per_iter: 2\n", "lb.yaml", kShape);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model->layer_updates_per_iter, 2);
  ASSERT_EQ(model->layers.size(), 2u);
  EXPECT_THAT(model->layers.at(2).slot_to_expert, ElementsAre(0, 1, 2, 2, 3, 0));
}

TEST(BalancerYaml, RefusesUnknownAndMissingKeys) {
  EXPECT_THAT(complaint_of("num_slots: 6\nep_size: 2\n"), HasSubstr("ep_size: unknown key"));
  EXPECT_THAT(complaint_of("layer_updates_per_iter: 0\n"), HasSubstr("num_slots: missing"));
  EXPECT_THAT(complaint_of(""), HasSubstr("num_slots: missing"));
}

TEST(BalancerYaml, RefusesWrongTypesAndRanges) {
  EXPECT_THAT(complaint_of("num_slots: many\n"), HasSubstr("num_slots: expected"));
  EXPECT_THAT(complaint_of("num_slots: 0\n"),
              HasSubstr("num_slots: 0 stands for no load balancer only within moe_config"));
  EXPECT_THAT(complaint_of("num_slots: -1\n"), HasSubstr("num_slots: expected"));
  EXPECT_THAT(complaint_of("num_slots: 6\nlayer_updates_per_iter: -1\n"),
              HasSubstr("layer_updates_per_iter: expected"));
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments: [0, 1, 2, 3]\n"),
              HasSubstr("initial_global_assignments: expected a map"));
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments: {1: [0, x, 2, 3]}\n"),
              HasSubstr("initial_global_assignments.1"));
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments: {one: [0, 1, 2, 3]}\n"),
              HasSubstr("expected a layer index"));
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments: {1: [], 01: []}\n"),
              HasSubstr("layer 1 occurs twice"));
}

TEST(BalancerYaml, RefusesSlotsThatDoNotFitTheRanks) {
  EXPECT_THAT(complaint_of("num_slots: 7\n"), HasSubstr("set num_slots to 8"));
  EXPECT_THAT(complaint_of("num_slots: 2\n"), HasSubstr("at least one slot for each of 4 experts"));
  EXPECT_THAT(complaint_of("num_slots: 6\n", {{1}, 4, 8}), HasSubstr("8 ranks cannot share 6"));
}

TEST(BalancerYaml, RefusesLayersThatTheModelLacks) {
  EXPECT_THAT(complaint_of("num_slots: 4\ninitial_global_assignments: {1: [0, 1, 2, 3]}\n"),
              HasSubstr("layer 2 is missing, expected the MoE layers 1, 2"));
  const std::string third =
      std::string(kGood).replace(std::string(kGood).find("  2:"), 0, "  61: [0, 1, 2, 3, 0, 1]\n");
  EXPECT_THAT(complaint_of(third), HasSubstr("initial_global_assignments.61: not a MoE layer"));
}

TEST(BalancerYaml, RefusesBadLayerLists) {
  const auto with_layer = [](const std::string& list) {
    return "num_slots: 4\ninitial_global_assignments: {1: [0, 1, 2, 3], 2: [" + list + "]}\n";
  };
  EXPECT_THAT(complaint_of(with_layer("0, 1, 2")),
              HasSubstr("initial_global_assignments.2: expected one expert for each of the 4 slots "
                        "(num_slots), found 3"));
  EXPECT_THAT(complaint_of(with_layer("0, 1, 2, 4")), HasSubstr("slot 3: expected an expert id"));
  EXPECT_THAT(complaint_of(with_layer("0, 1, 2, -2")), HasSubstr("slot 3: expected an expert id"));
  EXPECT_THAT(complaint_of(with_layer("0, 1, 2, 4294967299")), HasSubstr("found 4294967299"));
  EXPECT_THAT(complaint_of(with_layer("0, 1, 2, 2")), HasSubstr("expert 3 has no slot"));
  EXPECT_EQ(complaint_of(with_layer("3, 1, 2, 0")), "accepted");
}

TEST(BalancerYaml, ExactLoad) {
  const auto read = [](const std::string& lines) {
    return parse_balancer_yaml("num_slots: 8\n" + lines, "lb.yaml",
                               {.moe_layers = {0}, .num_experts = 8, .ep_size = 2});
  };
  EXPECT_FALSE(read("layer_updates_per_iter: 1\n")->exact_load);
  EXPECT_FALSE(read("exact_load: off\n")->exact_load);
  const auto exact = read("layer_updates_per_iter: 1\nexact_load: node\n");
  ASSERT_TRUE(exact.ok()) << exact.status().message();
  EXPECT_TRUE(exact->exact_load);
  EXPECT_EQ(*parse_balancer_yaml(balancer_yaml_text(*exact), "lb.yaml",
                                 {.moe_layers = {0}, .num_experts = 8, .ep_size = 2}),
            *exact);
  EXPECT_THAT(read("exact_load: node\n").status().message(),
              HasSubstr("lb.yaml: exact_load: node reads experts from the host pool"));
  EXPECT_THAT(read("layer_updates_per_iter: 1\nexact_load: rank\n").status().message(),
              HasSubstr("exact_load: expected off or node, found 'rank'"));
}

TEST(BalancerYaml, ShareUpdate) {
  const auto share_update = [](const std::string& line) {
    const auto model = parse_balancer_yaml("num_slots: 6\n" + line, "lb.yaml", kShape);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model->share_update;
  };
  EXPECT_EQ(share_update(""), ShareUpdate::kIteration);
  EXPECT_EQ(share_update("share_update: iteration\n"), ShareUpdate::kIteration);
  EXPECT_EQ(share_update("share_update: window\n"), ShareUpdate::kWindow);
  EXPECT_THAT(complaint_of("num_slots: 6\nshare_update: always\n"),
              HasSubstr("share_update: expected iteration or window, found 'always'"));
  EXPECT_THAT(complaint_of("num_slots: 4\nshare_update: window\n"),
              HasSubstr("share_update: has no effect with num_slots 4"));
  const std::string text = std::string(kGood) + "share_update: window\n";
  EXPECT_EQ(balancer_yaml_text(*parse_balancer_yaml(text, "lb.yaml", kShape)), text);
}

TEST(BalancerYaml, OnlineKeys) {
  const std::string online = "num_slots: 6\nlayer_updates_per_iter: 1\n";
  const auto plain = parse_balancer_yaml(online, "lb.yaml", kShape);
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->update_policy, UpdatePolicyKind::kWideep);
  EXPECT_EQ(plain->spare_slots, 0);
  EXPECT_TRUE(plain->rests_when_unpaid);
  const auto all = parse_balancer_yaml(
      online + "update_policy: trt\nspare_slots: 3\nunpaid_moves: go_on\n", "lb.yaml", kShape);
  ASSERT_TRUE(all.ok()) << all.status().message();
  EXPECT_EQ(all->update_policy, UpdatePolicyKind::kTrt);
  EXPECT_EQ(all->spare_slots, 3);
  EXPECT_FALSE(all->rests_when_unpaid);
  EXPECT_EQ(*parse_balancer_yaml(balancer_yaml_text(*all), "lb.yaml", kShape), *all);
  EXPECT_THAT(complaint_of(online + "update_policy: eplb\n"),
              HasSubstr("update_policy: expected wideep or trt, found 'eplb'"));
  EXPECT_THAT(complaint_of(online + "spare_slots: 0\n"), HasSubstr("spare_slots"));
  EXPECT_THAT(complaint_of("num_slots: 6\nspare_slots: 2\n"),
              HasSubstr("spare_slots: has no effect with layer_updates_per_iter 0"));
  EXPECT_THAT(complaint_of(online + "unpaid_moves: stop\n"),
              HasSubstr("unpaid_moves: expected rest or go_on, found 'stop'"));
  EXPECT_THAT(complaint_of("num_slots: 6\nunpaid_moves: rest\n"),
              HasSubstr("unpaid_moves: has no effect with layer_updates_per_iter 0"));
}

TEST(BalancerYaml, NamesTheMissingFile) {
  const Result<ModelPlacement> model = read_balancer_yaml("/no/such/lb.yaml", kShape);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.status().message(), HasSubstr("/no/such/lb.yaml"));
}

}  // namespace
}  // namespace wideep::recordings
