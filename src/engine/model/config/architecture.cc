// SPDX-License-Identifier: Apache-2.0
//
// find_family() is a look-up; most of the code names the reason when it fails: a model that is
// known not to be computed, the class that wideep would compute for this model_type, the nearest
// spelling, or the family with the nearest keys. In this order, since the first one that holds is
// the most exact.
#include "model/config/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/printable.h"
#include "base/spelling.h"
#include "model/config/nearest_family.h"

namespace wideep::model {
namespace {

using formats::JsonObject;

// The first of "architectures": the class that computes the checkpoint. An empty list says nothing.
std::string architecture_class(const JsonObject& root) {
  if (!root.has("architectures")) return "";
  const nlohmann::json& list = root.raw().at("architectures");
  if (list.is_array() && list.empty()) return "";
  if (list.is_array() && list[0].is_string()) return list[0].get<std::string>();
  root.complain("architectures", "expected a list that begins with a class name");
  return "";
}

const Family* family_of_type(std::string_view model_type) {
  const auto known = std::ranges::find(families(), model_type, &Family::model_type);
  return known == families().end() ? nullptr : &*known;
}

// Whether the file, or the text model in it, speaks of experts.
bool has_experts(const JsonObject& root) {
  const auto speaks = [](const nlohmann::json& object) {
    return std::ranges::any_of(object.items(), [](const auto& item) {
      return item.key().find("expert") != std::string::npos ||
             item.key().find("moe") != std::string::npos;
    });
  };
  if (speaks(root.raw())) return true;
  const auto text = root.raw().find("text_config");
  return text != root.raw().end() && text->is_object() && speaks(*text);
}

// The first ones, with commas.
std::string first_keys(const std::vector<std::string>& keys) {
  constexpr size_t kMost = 8;
  const size_t shown = std::min(keys.size(), kMost);
  return fmt::format("{}{}", fmt::join(keys.begin(), keys.begin() + shown, ", "),
                     shown < keys.size() ? fmt::format(" and {} more", keys.size() - shown) : "");
}

// What is nearest to it, and where to read on.
std::string help_to_add(const JsonObject& root) {
  constexpr std::string_view kPage = "; docs/models.md#adding-a-family says how one is added";
  const std::optional<NearestFamily> nearest = nearest_family(root, has_experts(root));
  if (!nearest) return std::string(kPage);
  return fmt::format("; its keys are most like those of {}, which reads all{}{}{}",
                     nearest->family->model_type, nearest->unread.empty() ? " of them" : " but ",
                     first_keys(nearest->unread), kPage);
}

// Why wideep does not compute it: the nearest of the reasons.
std::string reason_against(const JsonObject& root, const std::string& name, bool by_class,
                           const std::string& model_type) {
  if (const std::string_view known = reason_for_refusal(name); !known.empty()) {
    return std::string(known);
  }
  if (const std::string_view known = reason_for_refusal(model_type); !known.empty()) {
    return fmt::format("{}: {}", base::printable(model_type), known);
  }
  if (const Family* family = family_of_type(model_type); by_class && family != nullptr) {
    return fmt::format("of model_type {} wideep computes {}", family->model_type,
                       family->class_name);
  }
  if (root.has("hidden_size") && !has_experts(root)) {
    return "a model without experts, of which wideep serves Llama, Mistral, Qwen2 and Qwen3" +
           help_to_add(root);
  }
  const auto begin_of = [&](std::string_view known) {
    return std::string(by_class ? known.substr(0, known.find("For")) : known);
  };
  std::vector<std::string> names;
  for (const Family& family : families()) {
    names.push_back(begin_of(by_class ? family.class_name : family.model_type));
  }
  if (const auto close = base::closest_word(begin_of(name), names)) {
    const auto index = static_cast<size_t>(std::ranges::find(names, *close) - names.begin());
    const Family& family = families()[index];
    return fmt::format("did you mean {}?", by_class ? family.class_name : family.model_type);
  }
  return "wideep does not know how it computes" + help_to_add(root);
}

// Records an error unless the object's model_type, if it has one, is of this family.
void check_model_type(const JsonObject& object, const Family& family) {
  const std::string model_type = object.string_or("model_type", "");
  const Family* known = family_of_type(model_type);
  if (model_type.empty() || (known != nullptr && known->read == family.read)) return;
  object.complain(
      "model_type",
      fmt::format("expected {}, as architectures says, found {}; keys that the file does not have "
                  "may mean something else there",
                  family.model_type, base::printable(model_type)));
}

}  // namespace

const Family* find_family(const JsonObject& root) {
  const std::string class_name = architecture_class(root);
  const std::string model_type = root.string_or("model_type", "");
  for (const Family& known : families()) {
    if (class_name.empty() ? model_type != known.model_type : class_name != known.class_name) {
      continue;
    }
    check_model_type(root, known);
    return &known;
  }
  const bool by_class = !class_name.empty() || model_type.empty();
  const std::string& name = by_class ? class_name : model_type;
  root.complain(by_class ? "architectures" : "model_type",
                name.empty() ? "missing; expected a class name, such as MixtralForCausalLM"
                             : fmt::format("{} is not supported: {}", base::printable(name),
                                           reason_against(root, name, by_class, model_type)));
  return nullptr;
}

void check_text_model_type(const JsonObject& text, const Family& family) {
  if (family.text_type.empty()) return check_model_type(text, family);
  const std::string model_type = text.string_or("model_type", "");
  if (model_type == family.text_type) return;
  text.complain("model_type",
                fmt::format("expected {}, the only text model in {} that wideep computes, found {}",
                            family.text_type, family.class_name,
                            model_type.empty() ? "none" : base::printable(model_type)));
}

}  // namespace wideep::model
