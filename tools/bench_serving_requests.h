// SPDX-License-Identifier: Apache-2.0
//
// The requests of `wideep bench serving`: random token ids, or a file in one of several forms.
#pragma once

#include <string>
#include <vector>

#include "measure/serving/dataset.h"
#include "wideep/status.h"

namespace wideep::tools {

struct ServingRequestOptions {
  // random; sharegpt; trtllm_custom; wideep: as prepare-dataset writes it
  std::string kind = "random";
  std::string path;
  std::string tokenizer;  // a model directory; "": none
  int num_prompts = 64;   // of a file: at most
  // Random ones: lengths · (1 ± range_ratio), behind a prefix that all share.
  int input_tokens = 128, output_tokens = 64;
  double range_ratio = 0.0;
  int prefix_tokens = 0;
  int min_id = 100, num_ids = 1000;
  uint64_t seed = 0;
  int sharegpt_output_tokens = 0;  // 0: as long as the conversation's answer
  bool as_ids = false;             // texts become ids here (--tokenize-on-client)
  bool as_texts = false;           // ids become texts here: chats have only these
};

// Errors (invalid input): no path where one is needed; a file that cannot be read or has no request
// of the kind; no tokenizer where one is needed.
Result<std::vector<measure::DatasetRequest>> serving_requests(const ServingRequestOptions& options);

}  // namespace wideep::tools
