// SPDX-License-Identifier: Apache-2.0
//
// The rules of names alone: which published tensors a canonical name may mean, and in which order.
#include "weights/tensor_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace wideep::weights {
namespace {

using Rows = TensorPart::Rows;
using testing::ElementsAre;
using testing::Field;
using testing::IsEmpty;
using testing::Not;

std::vector<std::string> names_of(const std::vector<PublishedTensor>& tensors) {
  std::vector<std::string> names;
  for (const PublishedTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(TensorNames, WithoutRulesANameIsItself) {
  const TensorNames names;
  EXPECT_THAT(names_of(names.published("model.norm.weight")), ElementsAre("model.norm.weight"));
  EXPECT_TRUE(names.published("model.norm.weight").front().is_whole());
}

TEST(TensorNames, RenamesPartsOfAPathAndKeepsTheRest) {
  TensorNames names;
  names.rename("mlp.experts.*.gate_proj", "block_sparse_moe.experts.*.w1")
      .rename("mlp.gate.e_score_correction_bias", "mlp.moe_statics.e_score_correction_bias")
      .rename("mlp", "feed_forward");
  const auto first = [&](const std::string& name) { return names.published(name).front().name; };
  EXPECT_EQ(first("model.layers.31.mlp.experts.127.gate_proj.weight_scale_inv"),
            "model.layers.31.block_sparse_moe.experts.127.w1.weight_scale_inv");
  EXPECT_EQ(first("model.layers.0.mlp.gate.e_score_correction_bias"),
            "model.layers.0.mlp.moe_statics.e_score_correction_bias");
  EXPECT_EQ(first("model.layers.0.mlp.gate.weight"), "model.layers.0.feed_forward.gate.weight");
  // Only whole parts match, and "*" is a number.
  EXPECT_EQ(first("model.layers.0.mlps.gate.weight"), "model.layers.0.mlps.gate.weight");
  EXPECT_EQ(first("model.layers.0.mlp.experts.x.gate_proj.weight"),
            "model.layers.0.feed_forward.experts.x.gate_proj.weight");
}

TEST(TensorNamesDeathTest, RulesWithOtherNumbersAreMistakes) {
  TensorNames names;
  EXPECT_DEATH(names.rename("mlp.experts.*.up_proj", "moe.*.w.*"), "all_experts");
  EXPECT_DEATH(names.rename("a.*.b.*", "a"), "all_experts");
}

TEST(TensorNames, NumbersKeepTheirOrder) {
  TensorNames names;
  names.rename("model.layers.*.mlp.experts.*", "blocks.*.moe.*");
  EXPECT_EQ(names.published("model.layers.12.mlp.experts.345.up_proj.bias").front().name,
            "blocks.12.moe.345.up_proj.bias");
}

TEST(TensorNames, TriesRulesInOrderThenTheNameThenFusedExperts) {
  TensorNames names;
  names.rename("mlp.experts.*.gate_proj", "moe.*.w1").rename("mlp.experts", "moe");
  EXPECT_THAT(names_of(names.published("l.mlp.experts.5.gate_proj.weight")),
              ElementsAre("l.moe.5.w1.weight", "l.moe.5.gate_proj.weight",
                          "l.mlp.experts.5.gate_proj.weight", "l.mlp.experts.gate_up_proj.weight",
                          "l.mlp.experts.gate_up_proj"));
}

TEST(TensorNames, FusedExpertsOfTransformersAreReadInEveryFamily) {
  const TensorNames names;
  const auto last = [&](const std::string& name) { return names.published(name).back(); };
  const PublishedTensor gate = last("model.layers.3.mlp.experts.7.gate_proj.weight");
  EXPECT_EQ(gate.name, "model.layers.3.mlp.experts.gate_up_proj");
  EXPECT_EQ(gate.expert, 7);
  EXPECT_EQ(gate.part, (TensorPart{Rows::kFirstHalf, false}));
  EXPECT_EQ(last("m.mlp.experts.0.up_proj.weight").part, (TensorPart{Rows::kSecondHalf, false}));
  EXPECT_EQ(last("m.mlp.experts.11.down_proj.bias").name, "m.mlp.experts.down_proj_bias");
  EXPECT_EQ(last("m.mlp.experts.11.down_proj.weight_scale_inv").name,
            "m.mlp.experts.down_proj_scale_inv");
  EXPECT_EQ(last("m.mlp.experts.11.down_proj.weight").expert, 11);
  EXPECT_EQ(last("m.mlp.experts.11.down_proj.weight").part, TensorPart{});
}

TEST(TensorNames, FusedExpertsMayAlternateOrBeTransposed) {
  TensorNames alternating, transposed;
  alternating.fuse_experts("mlp.experts.gate_up_proj", "mlp.experts.down_proj",
                           GateUp::kAlternating);
  EXPECT_EQ(alternating.published("m.mlp.experts.2.gate_proj.weight").front().part,
            (TensorPart{Rows::kEven, false}));
  EXPECT_EQ(alternating.published("m.mlp.experts.2.up_proj.weight").front().part,
            (TensorPart{Rows::kOdd, false}));
  transposed.fuse_experts("feed_forward.experts.gate_up_proj", "feed_forward.experts.down_proj",
                          GateUp::kHalves, true);
  const PublishedTensor down = transposed.published("m.mlp.experts.2.down_proj.weight").front();
  EXPECT_EQ(down.name, "m.feed_forward.experts.down_proj.weight");
  EXPECT_EQ(down.part, (TensorPart{Rows::kAll, true}));
  EXPECT_EQ(transposed.published("m.mlp.experts.2.up_proj.weight").front().part,
            (TensorPart{Rows::kSecondHalf, true}));
}

TEST(TensorNames, FusedMlpsAreHalvesOfOneMatrix) {
  TensorNames names;
  names.fuse_mlp("mlp.shared_experts", "shared_mlp.input_linear", "shared_mlp.output_linear");
  const auto first = [&](const std::string& name) { return names.published(name).front(); };
  const PublishedTensor up = first("model.layers.3.mlp.shared_experts.up_proj.weight");
  EXPECT_EQ(up.name, "model.layers.3.shared_mlp.input_linear.weight");
  EXPECT_EQ(up.part, (TensorPart{Rows::kSecondHalf, false}));
  EXPECT_FALSE(up.expert.has_value());
  EXPECT_TRUE(first("model.layers.3.mlp.shared_experts.down_proj.weight").is_whole());
}

TEST(TensorNames, NumbersTooLargeForAnExpertAreNoNumbers) {
  const TensorNames names;
  EXPECT_THAT(names_of(names.published("mlp.experts.99999999999999999999.gate_proj.weight")),
              ElementsAre("mlp.experts.99999999999999999999.gate_proj.weight"));
  EXPECT_THAT(names.published(""), ElementsAre(Field(&PublishedTensor::name, IsEmpty())));
  EXPECT_THAT(names.published("..."), Not(IsEmpty()));
}

}  // namespace
}  // namespace wideep::weights
