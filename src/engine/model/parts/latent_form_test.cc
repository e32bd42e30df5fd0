// SPDX-License-Identifier: Apache-2.0
#include "model/parts/latent_form.h"

#include <gtest/gtest.h>

namespace wideep::model {
namespace {

LatentProblem deepseek_v3(int position, int prompt_length) {
  return {position, prompt_length, 512, 128, 64, 128};
}

TEST(LatentForm, PromptsAreExpandedAndGeneratedTokensAbsorbed) {
  EXPECT_EQ(choose_latent_form(deepseek_v3(0, 100)), LatentForm::kExpanded);
  EXPECT_EQ(choose_latent_form(deepseek_v3(99, 100)), LatentForm::kExpanded);
  EXPECT_EQ(choose_latent_form(deepseek_v3(100, 100)), LatentForm::kAbsorbed);
  EXPECT_EQ(latent_form_name(LatentForm::kAbsorbed), "absorbed");
}

TEST(LatentForm, ShortPromptsAreAbsorbed) {
  EXPECT_EQ(choose_latent_form(deepseek_v3(0, 5)), LatentForm::kAbsorbed);
}

TEST(LatentForm, WhereHeadsAreAsWideAsTheLatentNothingIsExpanded) {
  EXPECT_EQ(choose_latent_form({0, 100, 16, 24, 4, 24}), LatentForm::kAbsorbed);
}

TEST(LatentForm, OddHeadsAreNotExpanded) {
  EXPECT_EQ(choose_latent_form({0, 100, 512, 127, 64, 128}), LatentForm::kAbsorbed);
}

}  // namespace
}  // namespace wideep::model
