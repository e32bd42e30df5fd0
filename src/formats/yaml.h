// SPDX-License-Identifier: Apache-2.0
//
// Reading YAML settings strictly: a key nobody asked for is an error, as is a wrong type. Same
// manner as json.h, with line numbers.
//
//   WIDEEP_TRY_ASSIGN(YamlDocument document, YamlDocument::read("parallel_config.yaml"));
//   YamlMap root = document.root();
//   int64_t tp = root.integer_or("tensor_parallel_size", 1, {.min = 1});
//   root.refuse_unknown_keys();                 // lists the keys that are known
//   WIDEEP_TRY(document.status());
//
// Messages read "<file>:<line>: <key>: <what>". Views are valid as long as their document. Not
// thread safe: accessors share the document's complaint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/complaint.h"
#include "formats/files.h"
#include "formats/range.h"
#include "wideep/status.h"

namespace YAML {
class Node;
}

namespace wideep::formats {

// One map of a document, with the dotted path that leads to it. After a complaint accessors return
// 0, false, "" or their default.
class YamlMap {
 public:
  YamlMap(std::shared_ptr<const YAML::Node> node, std::string path, Complaint* complaint);

  bool has(std::string_view key) const;  // present and not null; marks the key as known
  std::vector<std::string> keys() const;

  int64_t integer(std::string_view key, IntegerRange range = {});
  int64_t integer_or(std::string_view key, int64_t fallback, IntegerRange range = {});
  bool boolean_or(std::string_view key, bool fallback);
  double number_or(std::string_view key, double fallback, NumberRange range = {});
  std::string string_or(std::string_view key, std::string fallback);
  std::vector<int64_t> integers(std::string_view key, IntegerRange range = {});
  // True when the value is a map (inline settings) rather than a scalar (a path).
  bool is_map(std::string_view key) const;
  YamlMap map(std::string_view key);  // complains when absent or no map

  // Complains about the first key that no accessor has asked for, and lists the known ones.
  void refuse_unknown_keys();
  // Complains about a key of this map with a message of the caller's.
  void complain(std::string_view key, std::string_view what);

 private:
  std::optional<YAML::Node> find(std::string_view key) const;
  std::optional<YAML::Node> require(std::string_view key, const std::string& expected);
  std::string path_of(std::string_view key) const;

  std::shared_ptr<const YAML::Node> node_;
  std::string path_;
  Complaint* complaint_;
  mutable std::set<std::string, std::less<>> known_;
};

class YamlDocument {
 public:
  // Errors (invalid input): missing or unreadable file, not YAML, a key twice in a map, more than
  // one document, a root that is no map, or too large or deep (yaml_parse.h).
  static Result<YamlDocument> read(const std::string& path);
  static Result<YamlDocument> parse(const std::string& text, const std::string& name);

  YamlMap root() const;  // an empty document is an empty map
  const Status& status() const { return complaint_->status(); }

 private:
  std::shared_ptr<const YAML::Node> node_;
  std::unique_ptr<Complaint> complaint_;
};

}  // namespace wideep::formats
