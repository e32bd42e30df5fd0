// SPDX-License-Identifier: Apache-2.0
//
// Prompts from the text that the reference model has not been trained on.
#pragma once

#include <string>
#include <vector>

namespace wideep::tools {

// Its sentences, a few at a time.
std::vector<std::string> held_out_prompts();

}  // namespace wideep::tools
