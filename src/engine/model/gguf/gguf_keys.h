// SPDX-License-Identifier: Apache-2.0
//
// The metadata of a GGUF file on the way to a config.json: looks up keys of the file's
// architecture ("qwen3moe.block_count" as "block_count"), and collects the keys of config.json.
// Values are passed on with the type that they have, so that the reader of config.json checks them.
//
// Not thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_files/gguf.h"

namespace wideep::model {

// A scalar or a list as JSON. Numbers of 32 bits become the shortest decimal that means them.
nlohmann::ordered_json to_json(const tensor_files::GgufValue& value);

class GgufKeys {
 public:
  using Json = nlohmann::ordered_json;

  // REQUIRES: files outlive the object.
  GgufKeys(const tensor_files::GgufFiles& files, std::string architecture);

  const std::string& architecture() const { return architecture_; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // The value; null: absent. Other lists than those of equal numbers stay lists; of lists with
  // zeros (layers without attention) the largest number is taken.
  Json value(std::string_view key) const;
  // A number that is an integer; `otherwise` if it is absent or something else. Those beyond ±2^53
  // are cut to it, so that sums of two cannot overflow: readers of config.json refuse both.
  int64_t integer_or(std::string_view key, int64_t otherwise) const;
  double number_or(std::string_view key, double otherwise) const;
  // The elements of a list of integers or booleans; empty: absent, or something else.
  std::vector<int64_t> integers(std::string_view key) const;
  // The same of numbers.
  std::vector<double> numbers(std::string_view key) const;
  std::string text_or(std::string_view key, const std::string& otherwise) const;

  // nullptr: no such tensor.
  const tensor_files::GgufTensor* tensor(std::string_view name) const;
  bool has_tensor(std::string_view name) const { return tensor(name) != nullptr; }
  // Whether some layer has "blk.<layer>.<name>".
  bool some_layer_has(std::string_view name) const;

  // config.json, which grows.
  Json config = Json::object();
  // config[key] = the value of `from`; nothing if it is absent.
  void copy(const char* key, std::string_view from);
  // The same with a value for files without it.
  void copy_or(const char* key, std::string_view from, const Json& otherwise);
  // The same value under another key.
  void rename(const char* from, const char* to);

  // A contradiction of the file, which no reader of config.json could find. The first is kept:
  // "qwen3moe.expert_gating_func: …"; "": there is none.
  void complain(std::string_view key, std::string_view what);
  const std::string& complaint() const { return complaint_; }
  // Complains unless the key has this value, if the file has it.
  void require(std::string_view key, const Json& expected);

  // Where a key of config.json has its value from, for messages: a key of the file, or a tensor.
  void set_origin(const std::string& key, std::string_view from);
  void set_origin_tensor(const std::string& key, const std::string& name) {
    origins_.insert_or_assign(key, name);
  }
  const std::map<std::string, std::string>& origins() const { return origins_; }

  // Layers without those that predict further tokens, and those.
  int64_t num_layers() const;
  int64_t num_predicting() const;

  // The keys of the architecture that nothing has asked for.
  std::vector<std::string> unasked() const;

 private:
  const tensor_files::GgufValue* find(std::string_view key) const;

  const tensor_files::GgufFiles& files_;
  std::string architecture_;
  mutable std::set<std::string> asked_;
  std::map<std::string, std::string> origins_;
  std::string complaint_;
};

}  // namespace wideep::model
