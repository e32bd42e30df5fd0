// SPDX-License-Identifier: Apache-2.0
//
// Reads YAML settings strictly: an unknown key is an error, as is a wrong type. Works like json.h,
// and errors give the line too.
//
//   WIDEEP_TRY_ASSIGN(YamlDocument document, YamlDocument::read("parallel_config.yaml"));
//   YamlMap root = document.root();
//   int64_t tp = root.integer_or("tensor_parallel_size", 1, {.min = 1});
//   root.refuse_unknown_keys();                 // the error lists the known keys
//   WIDEEP_TRY(document.status());
//
// Error messages have the form "<file>:<line>: <key>: <what>". Views are valid as long as their
// document. Not thread safe: accessors write to the document's Complaint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
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

// One map of a document, with its dotted path. Every accessor marks its key as known. An accessor
// that finds an error reports it to the Complaint and returns 0, false, "" or the fallback.
class YamlMap {
 public:
  YamlMap(std::shared_ptr<const YAML::Node> node, std::string path, Complaint* complaint);

  bool has(std::string_view key) const;  // present and not null
  std::vector<std::string> keys() const;

  int64_t integer(std::string_view key, IntegerRange range = {});
  int64_t integer_or(std::string_view key, int64_t fallback, IntegerRange range = {});
  bool boolean_or(std::string_view key, bool fallback);
  double number(std::string_view key, NumberRange range = {});
  double number_or(std::string_view key, double fallback, NumberRange range = {});
  std::string string_or(std::string_view key, std::string fallback);
  // A scalar, or each of a list, as it is written but for quotes. Anything else is an error.
  std::vector<std::string> texts(std::string_view key);
  std::vector<int64_t> integers(std::string_view key, IntegerRange range = {});
  // Whether the value is a map (inline settings) rather than a scalar (a path).
  bool is_map(std::string_view key) const;
  YamlMap map(std::string_view key);  // absent or another type: an error

  // Reports the first key that is not marked as known. Call it after all accessors.
  void refuse_unknown_keys();
  // Reports an error of the caller's about a key of this map.
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
  // Errors (invalid input): missing or unreadable file, not YAML, a key that appears twice in a
  // map, more than one document, a root that is no map, or beyond the limits of yaml_parse.h.
  static Result<YamlDocument> read(const std::string& path);
  static Result<YamlDocument> parse(const std::string& text, const std::string& name);

  YamlMap root() const;  // an empty document is an empty map
  // Makes the map at a dotted path, as "worker_config.gen", the root. Errors (invalid input): there
  // is none; the message has the maps that there are.
  Status enter(std::string_view path);
  // After enter(): adds the members of the document's own root that the new root lacks, but for
  // these keys. A key of both with different values is an error of the document.
  void inherit(std::span<const std::string_view> but);
  const Status& status() const { return complaint_->status(); }
  std::string text() const;  // of the root, as YAML that reads the same; "" of an empty document

 private:
  std::shared_ptr<const YAML::Node> node_;   // the root
  std::shared_ptr<const YAML::Node> whole_;  // of the document
  std::string path_;                         // of the root in the document
  std::unique_ptr<Complaint> complaint_;
};

}  // namespace wideep::formats
