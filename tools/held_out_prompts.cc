// SPDX-License-Identifier: Apache-2.0
#include "held_out_prompts.h"

#include "held_out_text.h"

namespace wideep::tools {

std::vector<std::string> held_out_prompts() {
  std::vector<std::string> prompts;
  std::string prompt;
  for (const char c : std::string(kHeldOutText)) {
    prompt += c;
    if (c != '.' || prompt.size() < 120) continue;
    prompts.push_back(prompt);
    prompt.clear();
  }
  if (prompts.empty()) prompts.push_back(prompt);
  return prompts;
}

}  // namespace wideep::tools
