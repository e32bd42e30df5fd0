// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "chat/chat_template.h"

// Any text must be a template that renders, or be refused with an error.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = wideep::chat::ChatTemplate::parse(text, "t");
  if (!parsed.ok()) return 0;
  const auto rendered = parsed->render({.messages = {{{"role", "user"}, {"content", "Hi"}},
                                                     {{"role", "assistant"}, {"content", "Yes"}}},
                                        .special_tokens = {{"bos_token", "<s>"}},
                                        .now = 0});
  return rendered.ok() || !rendered.status().message().empty() ? 0 : 1;
}
