// SPDX-License-Identifier: Apache-2.0
#include "model/rounding_notes.h"

#include <gmock/gmock.h>

#include "model/config/config_testing.h"
#include "model/model_files.h"
#include "weights/weight_loader.h"

namespace wideep::model {
namespace {

// What is said where nothing has asked for a format.
std::vector<std::string> notes_of(const std::string& dir) {
  auto config = read_model_config(dir);
  EXPECT_TRUE(config.ok()) << config.status().message();
  const auto files = ModelFiles::open(dir, &*config);
  EXPECT_TRUE(files.ok()) << files.status().message();
  const ModelForms forms =
      model_forms(*config, weights::WeightLoader(files->tensors(), std::nullopt));
  return files->packing_notes(*config, forms);
}

TEST(RoundingNotes, NothingIsSaidOfWhatStaysAsItIs) {
  EXPECT_THAT(notes_of(golden_dir("qwen3_gqa")), testing::IsEmpty());
  EXPECT_THAT(notes_of(golden_dir("deepseek_groups")), testing::IsEmpty());
}

TEST(RoundingNotes, FloatsThatBecomeBf16) {
  const std::string families = WIDEEP_SOURCE_DIR "/tests/golden/family_models/";
  EXPECT_THAT(notes_of(families + "gpt_oss_float32"),
              testing::ElementsAre("--dtype auto: the embedding, attention, experts are stored as "
                                   "F32 and rounded to bf16 (--dtype float32 keeps their "
                                   "values)"));
  // Its experts are MXFP4, which they stay.
  EXPECT_THAT(notes_of(families + "gpt_oss_plain"), testing::IsEmpty());
}

}  // namespace
}  // namespace wideep::model
