// SPDX-License-Identifier: Apache-2.0
//
// The tree is walked once before anybody uses it, with each alias counted as if its target stood
// there: that is the work of all later walks, and what bounds files that expand without end.
// yaml-cpp's exceptions end here.
#include "formats/yaml_parse.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>

#include <exception>
#include <set>
#include <sstream>
#include <vector>

#include "base/printable.h"
#include "base/try.h"

namespace wideep::formats {
namespace {

Status error_at(const std::string& name, const YAML::Mark& mark, std::string_view what) {
  return invalid_input(fmt::format("{}:{}: {}", name, mark.line + 1, what));
}

// Walks the whole tree once, and each alias as if its target stood there: that is the work of any
// code that walks the tree later.
class TreeCheck {
 public:
  explicit TreeCheck(const std::string& name) : name_(name) {}

  Status check(const YAML::Node& node, int depth = 1) {
    if (++num_nodes_ > kMaxYamlNodes) {
      return error_at(name_, node.Mark(),
                      fmt::format("more than {} values after expanding aliases", kMaxYamlNodes));
    }
    // An alias inside its own anchor is a cycle, which only this limit ends.
    if (depth > kMaxYamlDepth) {
      return error_at(name_, node.Mark(),
                      fmt::format("nested deeper than {} levels (or an alias "
                                  "inside its own anchor)",
                                  kMaxYamlDepth));
    }
    if (node.IsMap()) return check_map(node, depth);
    if (!node.IsSequence()) return {};
    for (const YAML::Node& element : node) WIDEEP_TRY(check(element, depth + 1));
    return {};
  }

 private:
  Status check_map(const YAML::Node& node, int depth) {
    std::set<std::string> keys;
    for (const auto& member : node) {
      const YAML::Node& key = member.first;
      if (!key.IsScalar()) return error_at(name_, key.Mark(), "expected a scalar as the key");
      if (!keys.insert(key.Scalar()).second) {
        return error_at(name_, key.Mark(),
                        fmt::format("key '{}' appears twice", base::printable(key.Scalar())));
      }
      WIDEEP_TRY(check(member.second, depth + 1));
    }
    return {};
  }

  const std::string& name_;
  int64_t num_nodes_ = 0;
};

// Records where documents begin and ignores all other events.
class DocumentMarks : public YAML::EventHandler {
 public:
  const std::vector<YAML::Mark>& marks() const { return marks_; }

  void OnDocumentStart(const YAML::Mark& mark) override { marks_.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  std::vector<YAML::Mark> marks_;
};

// YAML::Load ignores all text after the first document. YAML::LoadAll never returns for text such
// as "]", in which the parser finds empty documents without end. So this looks for a second one
// only.
Status check_single_document(const std::string& text, const std::string& name) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentMarks documents;
  if (!parser.HandleNextDocument(documents) || !parser.HandleNextDocument(documents)) return {};
  return error_at(name, documents.marks().back(),
                  "expected one YAML document, found more after it");
}

Result<YAML::Node> load(const std::string& text, const std::string& name) {
  try {
    WIDEEP_TRY(check_single_document(text, name));
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    return error_at(name, error.mark, "not valid YAML: " + base::printable(error.msg));
  } catch (const std::exception& error) {
    return invalid_input(fmt::format("{}: not valid YAML: {}", name, error.what()));
  }
}

}  // namespace

Result<YAML::Node> parse_yaml(const std::string& text, const std::string& name) {
  if (text.size() > kMaxYamlBytes) {
    return invalid_input(
        fmt::format("{}: too large for a settings file: expected at most {} bytes, "
                    "found {}",
                    name, kMaxYamlBytes, text.size()));
  }
  WIDEEP_TRY_ASSIGN(YAML::Node root, load(text, name));
  WIDEEP_TRY(TreeCheck(name).check(root));
  return root;
}

}  // namespace wideep::formats
