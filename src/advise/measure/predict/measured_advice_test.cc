// SPDX-License-Identifier: Apache-2.0
//
// A calibration has to be read back as it was written, and mistakes in it named. Factors are held
// against sums by hand, and their effect against predictions without them, part by part. One case
// runs several layouts on this machine: what advise() recommends must be what the engine starts.
#include "measure/predict/measured_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_division.h"

namespace wideep::measure {
namespace {

using kernels::WeightFormat;
using testing::ElementsAre;
using testing::HasSubstr;

model::ModelConfig small_model() {
  const auto config = model::parse_model_config(R"({
    "model_type": "qwen3_moe", "vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32,
    "intermediate_size": 256, "moe_intermediate_size": 128, "num_experts": 8,
    "num_experts_per_tok": 2, "norm_topk_prob": true, "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": false,
    "decoder_sparse_step": 1, "mlp_only_layers": []})",
                                                "config.json");
  EXPECT_TRUE(config.ok()) << config.status().message();
  return *config;
}

// Of two cores; the numbers are any.
cost::Hardware cores() {
  return {.name = "this",
          .devices_per_node = 2,
          .divisible = true,
          .memory_bytes = 1e9,
          .memory_bandwidth = 4e10,
          .node_bandwidth = 6e10,
          .peak = {{WeightFormat::kBf16, 5e11}},
          .node_link = {.latency = 1e-7, .bandwidth = 1e10},
          .node_link_ranks = 64,
          .iteration = 1e-5};
}

AdviceCalibration example() {
  return {.machine = "a machine, 2 cores",
          .model = "3 layers of 128",
          .version = "1.2.3",
          .date = "2026-01-02",
          .factors = {.generating = {.experts = 1.04, .dense = 0.98, .exchange = 0.93},
                      .prompts = {.experts = 1.01, .dense = 1.1}},
          .measured = {{.name = "EP 2, 8 slots, batch 1", .predicted = 0.001, .measured = 0.0012}}};
}

TEST(AdviceCalibration, IsWrittenAsItIsRead) {
  const auto read = parse_advice_calibration(advice_calibration_text(example()), "file.yaml");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, example());
  EXPECT_EQ(text_of(read->factors),
            "experts ×1.04, dense ×0.98, exchange ×0.93; of prompts ×1.01, ×1.10, ×1.00");
}

TEST(AdviceCalibration, SaysWhatIsWrongAndWhere) {
  const auto complaint = [](std::string_view from, std::string_view to) {
    std::string text = advice_calibration_text(example());
    text.replace(text.find(from), from.size(), to);
    const auto read = parse_advice_calibration(text, "file.yaml");
    EXPECT_FALSE(read.ok()) << from << " -> " << to;
    return read.ok() ? "" : read.status().message();
  };
  EXPECT_THAT(complaint("experts: 1.0400", "experts: 0"), HasSubstr("factors.generating.experts"));
  EXPECT_THAT(complaint("dense: 0.9800, ", ""), HasSubstr("factors.generating.dense: missing"));
  EXPECT_THAT(complaint("date: ", "day: "), HasSubstr("date: missing"));
  EXPECT_THAT(complaint("date: ", "when: 1\ndate: "), HasSubstr("when"));
}

TEST(AdviceCalibration, OfAnotherMachineOrModelIsRefused) {
  EXPECT_TRUE(check_matches(example(), "f.yaml", "a machine, 2 cores", "3 layers of 128").ok());
  EXPECT_THAT(check_matches(example(), "f.yaml", "a machine, 4 cores", "3 layers of 128").message(),
              "f.yaml: is of another machine: expected 'a machine, 4 cores', found 'a machine, 2 "
              "cores'; measure here with --measure");
  EXPECT_THAT(check_matches(example(), "f.yaml", "a machine, 2 cores", "4 layers of 128").message(),
              HasSubstr("f.yaml: is of another model: expected '4 layers of 128'"));
}

TEST(AdviceCalibration, FactorsAreOfParts) {
  const std::vector<CheckedCell> cells = {
      {.measured = 1.0,
       .predicted_parts = {.experts = 0.5, .dense = 0.4, .exchange = 0.001},
       .measured_parts = {.experts = 0.55, .dense = 0.4, .exchange = 0.05}},
      {.measured = 10.0,
       .predicted_parts = {.experts = 5.0, .dense = 4.0, .exchange = 0.0},
       .measured_parts = {.experts = 6.5, .dense = 3.2, .exchange = 0.0}},
      {.is_prompt = true,
       .measured = 1.0,
       .predicted_parts = {.experts = 0.5},
       .measured_parts = {.experts = 0.75}}};
  const cost::IterationFactors factors = factors_of(cells);
  EXPECT_NEAR(factors.generating.experts, 1.2, 1e-12);
  EXPECT_NEAR(factors.generating.dense, 0.9, 1e-12);
  EXPECT_EQ(factors.generating.exchange, 4.0);  // bounded
  EXPECT_NEAR(factors.prompts.experts, 1.5, 1e-12);
  EXPECT_EQ(factors.prompts.dense, 1.0);  // nothing known
  EXPECT_NEAR(factors.at(0.25).experts, 1.275, 1e-12);
}

TEST(AdviceCalibration, FactorsCorrectPredictions) {
  const model::ModelConfig config = small_model();
  const cost::Layout layout{.ep = 2, .num_slots = 8, .format = WeightFormat::kBf16};
  const balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  const auto step = [&](const cost::Hardware& hardware, const model::StepShape& shape) {
    const advise::Question question{
        .hardware = hardware, .config = config, .planned = load, .judged = load};
    return advise::step_cost(question, layout)->step(shape);
  };
  const model::StepShape generating = model::decode_step(4, 32, 0);
  const model::StepShape prompt{.num_tokens = 32, .num_logit_rows = 0, .attended = 512};
  cost::Hardware hardware = cores();
  const cost::StepTime plain = step(hardware, generating), plain_prompt = step(hardware, prompt);
  hardware.factors = {.generating = {.experts = 2.0, .dense = 3.0, .exchange = 5.0},
                      .prompts = {.experts = 7.0}};
  const cost::StepTime corrected = step(hardware, generating);
  EXPECT_DOUBLE_EQ(corrected.experts, 2.0 * plain.experts);
  EXPECT_DOUBLE_EQ(corrected.attention + corrected.dense, 3.0 * (plain.attention + plain.dense));
  EXPECT_DOUBLE_EQ(corrected.dispatch + corrected.fixed, 5.0 * (plain.dispatch + plain.fixed));
  const cost::StepTime corrected_prompt = step(hardware, prompt);
  EXPECT_DOUBLE_EQ(corrected_prompt.experts, 7.0 * plain_prompt.experts);
  EXPECT_DOUBLE_EQ(corrected_prompt.dense, plain_prompt.dense);
}

// Attention DP and TP, slices and replicas run as advised; stages are said to be left out.
TEST(MeasureAdvice, RunsLayoutsOnThisMachine) {
  const model::ModelConfig config = small_model();
  const balance::ModelLoad load =
      cost::uniform_load(config.routing.num_experts, model::moe_layers(config));
  std::vector<advise::Candidate> candidates;
  for (const cost::Layout& layout :
       {cost::Layout{.num_slots = 8}, cost::Layout{.ep = 2, .num_slots = 8},
        cost::Layout{.ep = 2, .num_slots = 10}, cost::Layout{.expert_slices = 2, .num_slots = 8},
        cost::Layout{.ep = 2, .attention_dp = false, .num_slots = 8},
        cost::Layout{.stages = 2, .num_slots = 8}}) {
    candidates.push_back({.layout = layout, .batch = 3});
  }
  run::RunView view;
  std::vector<std::string> left_out;
  const auto cells = measure_advice({.hardware = cores(),
                                     .config = config,
                                     .planned = load,
                                     .judged = load,
                                     .workload = {.isl = 20, .osl = 8}},
                                    candidates, view, &left_out);
  ASSERT_TRUE(cells.ok()) << cells.status().message();
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("2 stages")));
  ASSERT_EQ(cells->size(), 10u);  // a batch and a prompt of each
  for (const CheckedCell& cell : *cells) {
    EXPECT_GT(cell.measured, 0.0) << cell.name;
    EXPECT_GT(cell.predicted, 0.0) << cell.name;
    EXPECT_GT(cell.measured_parts.experts, 0.0) << cell.name;
  }
}

}  // namespace
}  // namespace wideep::measure
