// SPDX-License-Identifier: Apache-2.0
//
// One table of the keys of TensorRT-LLM's worker configuration (tensorrt_llm/llmapi/llm_args.py):
// which wideep honours, which it accepts though they have no effect here, and which it refuses by
// name, each with the reason that a user reads. Honoured keys are read by parallel_config.cc and
// speculative_config.cc; all others by take_listed_keys().
//
// A key is accepted if nobody misses anything: it chooses kernels, memory or processes that wideep
// chooses itself. It is refused where answers, or what can be asked for, would be others than the
// file says. A value that is TensorRT-LLM's default is never refused.
//
// Thread safety: constants; take_listed_keys() writes to its arguments alone.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/yaml.h"

namespace wideep::parallel {

enum class KeyAnswer {
  kHonoured,
  kAccepted,  // with a line, unless the value is what wideep does anyway
  kRenamed,   // an older name: refused, with the newer one
  kRefused,
  kWorker,  // a worker's configuration in a file of several: refused; FILE:PART chooses one
};

enum class KeyType {
  kBoolean,
  kInteger,
  kNumber,
  kShare,  // 0 … 1
  kText,
  kIntegers,
  kMap,  // whose keys are in the table, too
  kAny,
};

struct ConfigKey {
  std::string_view path;  // as "kv_cache_config.dtype"
  KeyAnswer answer = KeyAnswer::kHonoured;
  KeyType type = KeyType::kAny;
  // The values that are accepted, as "AUTO|NCCL" (in any case of letters); empty: all of the type.
  std::string_view values = {};
  // Of these the ones that need no line.
  std::string_view quiet = {};
  // kAccepted: why there is no effect; empty: no line. kRenamed: the new name. kRefused: why.
  std::string_view why = {};
};

std::span<const ConfigKey> config_keys();

// Reads the keys of `map` that are in the table and not honoured. path: of the map, "" for the
// file's root. Adds a line to *notes for each that has no effect (null: the map as a whole has
// none, and has its line already); values and names that are refused are errors of the document.
void take_listed_keys(formats::YamlMap& map, std::string_view path,
                      std::vector<std::string>* notes);

}  // namespace wideep::parallel
