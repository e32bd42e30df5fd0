// SPDX-License-Identifier: Apache-2.0
#include "dataset_reuse.h"

#include <fmt/format.h>

#include <optional>
#include <variant>

#include "base/try.h"
#include "measure/serving/dataset.h"
#include "model/kv_layout.h"
#include "tokenizer/tokenizer.h"

namespace wideep::tools {

Result<std::vector<advise::ReuseRow>> dataset_reuse(const std::string& dataset,
                                                    const std::string& model,
                                                    const model::ModelConfig& config,
                                                    double seconds_per_token) {
  WIDEEP_TRY_ASSIGN(const auto requests, measure::read_dataset(dataset));
  const uint64_t page_bytes = model::KvLayout(config, Dtype::kBf16).page_bytes();
  if (page_bytes == 0) return invalid_input("--dataset: the model keeps no keys and values");
  std::optional<tokenizer::Tokenizer> tokenizer;
  advise::PromptReuse reuse;
  for (const measure::DatasetRequest& request : requests) {
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&request.prompt)) {
      reuse.add(*ids);
      continue;
    }
    if (!tokenizer && !tokenizer::Tokenizer::is_in(model)) {
      return invalid_input(fmt::format(
          "--dataset: {}: expected token ids (`input_ids`), found texts, and {} has no tokenizer; "
          "take the model's directory or make the dataset with wideep bench prepare-dataset",
          dataset, model));
    }
    if (!tokenizer) {
      WIDEEP_TRY_ASSIGN(tokenizer, tokenizer::Tokenizer::read(model));
    }
    reuse.add(tokenizer->encode(std::get<std::string>(request.prompt)));
  }
  return advise::reuse_rows(reuse, page_bytes, seconds_per_token);
}

}  // namespace wideep::tools
