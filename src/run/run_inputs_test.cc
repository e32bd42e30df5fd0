// SPDX-License-Identifier: Apache-2.0
#include "run/run_inputs.h"

#include <gtest/gtest.h>

#include "base/scratch_directory.h"
#include "formats/files.h"

namespace wideep::run {
namespace {

// Ranks on several nodes would make other tokens of one prompt.
TEST(Fingerprints, EveryFileOfATokenizerCounts) {
  const base::ScratchDirectory model;
  const RunOptions options{.model_dir = model.path()};
  RunInputs inputs;
  inputs.kernels = kernels::select_kernels(nullptr).value();
  transport::Settings before = fingerprints(options, inputs);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "added_tokens.json",
                           "special_tokens_map.json", "tiktoken.model", "hy.tiktoken"}) {
    ASSERT_TRUE(formats::write_file(model.file(file), "{}").ok());
    const transport::Settings after = fingerprints(options, inputs);
    EXPECT_NE(before, after) << file;
    before = after;
  }
}

}  // namespace
}  // namespace wideep::run
