// SPDX-License-Identifier: Apache-2.0
//
// Two steps: what a client sends becomes items of one form, with ids, which are stored and listed;
// these become messages. So what is stored was checked once, and the second step trusts it.
// Reasoning, text and calls that follow each other become one message of the assistant, unless it
// has such a member already; an output gets the name of the function that was called. Texts are
// joined in place, since a body may have an item every few bytes.
#include "api/responses_items.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "api/custom_input.h"
#include "api/reply_part.h"
#include "api/responses_tools.h"
#include "api/turn_messages.h"
#include "base/printable.h"
#include "formats/json_parse.h"

namespace wideep::server {
namespace {

using nlohmann::ordered_json;

// Nobody's are longer; and they are held and stored, but not in the prompt, which has its limit.
constexpr std::pair<const char*, size_t> kMaxIdBytes[] = {{"id", 64}, {"call_id", kMaxCallId}};
constexpr const char* kRoles[] = {"user", "assistant", "system", "developer"};

// Reads one item after the other; each function returns null after a complaint.
class ItemReader {
 public:
  ItemReader(BodyReader& body, std::string place, size_t number)
      : body_(body), place_(std::move(place)), number_(number) {}

  ordered_json read(const ordered_json& item) {
    if (!item.is_object()) return complain("", "expected an object, found " + shown(item));
    for (const auto& [name, max] : kMaxIdBytes) {
      const ordered_json& id = member_of(item, name);
      const size_t bytes = id.is_string() ? id.get_ref<const std::string&>().size() : 0;
      if (bytes <= max) continue;
      return complain(fmt::format(".{}", name),
                      fmt::format("expected at most {} bytes, found {}", max, bytes));
    }
    const ordered_json& type = member_of(item, "type");
    if (type.is_null() ? item.contains("role") : type == "message") return read_message(item);
    if (type == "function_call") return read_call(item);
    if (type == "custom_tool_call") return read_custom_call(item);
    if (type == "function_call_output") return read_output(item, "fco");
    if (type == "custom_tool_call_output") return read_output(item, "ctco");
    if (type == "reasoning") return read_thought(item);
    return complain(".type",
                    "expected \"message\", \"function_call\", \"function_call_output\", "
                    "\"custom_tool_call\", \"custom_tool_call_output\" or \"reasoning\", found " +
                        shown(type));
  }

  ordered_json message_of_text(const std::string& text) {
    return message("user", ordered_json::array({{{"type", "input_text"}, {"text", text}}}));
  }

 private:
  static std::string shown(const ordered_json& value) { return BodyReader::shown(value); }

  ordered_json complain(const std::string& member, const std::string& what) {
    body_.complain(place_ + member, what);
    return nullptr;
  }

  bool has_only(const std::string& member, const ordered_json& object, const NestedFields& fields) {
    return body_.check_members(place_ + member, object, fields);
  }

  // A text that has to be there.
  std::optional<std::string> text_of(const ordered_json& item, const char* name) {
    const ordered_json& value = member_of(item, name);
    if (value.is_string()) return value.get<std::string>();
    complain(fmt::format(".{}", name), "expected a string, found " + shown(value));
    return {};
  }

  std::string id_of(const ordered_json& item, const char* start) {
    const ordered_json& id = member_of(item, "id");
    if (id.is_string() && !id.get_ref<const std::string&>().empty()) return id;
    return fmt::format("{}_in{}", start, number_);
  }

  ordered_json message(const std::string& role, ordered_json content) {
    return {{"id", fmt::format("msg_in{}", number_)},
            {"type", "message"},
            {"status", "completed"},
            {"role", role},
            {"content", std::move(content)}};
  }

  ordered_json read_message(const ordered_json& item) {
    if (!has_only("", item, kItemMessage)) return nullptr;
    const ordered_json& role = member_of(item, "role");
    if (std::ranges::find(kRoles, role) == std::end(kRoles)) {
      return complain(".role",
                      fmt::format("expected {}, found {}", fmt::join(kRoles, ", "), shown(role)));
    }
    const bool is_answer = role == "assistant";
    const ordered_json& content = member_of(item, "content");
    ordered_json parts = ordered_json::array();
    if (content.is_string()) {
      parts.push_back(part_of(content, is_answer));
    } else if (content.is_array()) {
      for (size_t i = 0; i < content.size(); ++i) {
        parts.push_back(read_part(fmt::format(".content[{}]", i), content[i], is_answer));
        if (parts.back().is_null()) return nullptr;
      }
    } else {
      return complain(".content", "expected a string or a list of parts, found " + shown(content));
    }
    ordered_json result = message(role, std::move(parts));
    result["id"] = id_of(item, "msg");
    return result;
  }

  // Tools show what they have made to models that can see.
  bool is_image(const ordered_json& part) {
    if (member_of(part, "type") != "input_image") return false;
    body_.ignore("input[].output[] of type input_image");
    return true;
  }

  static ordered_json part_of(const ordered_json& text, bool is_answer) {
    if (!is_answer) return {{"type", "input_text"}, {"text", text}};
    return {{"type", "output_text"}, {"text", text}, {"annotations", ordered_json::array()}};
  }

  // Of an answer clients send back what they got, or input_text.
  ordered_json read_part(const std::string& member, const ordered_json& part, bool is_answer) {
    const ordered_json& type = member_of(part, "type");
    const bool is_text = type == "input_text" || (is_answer && type == "output_text");
    if (!is_text) {
      return complain(member + ".type",
                      fmt::format("expected \"input_text\"{}, found {}",
                                  is_answer ? " or \"output_text\"" : "", shown(type)));
    }
    if (!has_only(member, part, kItemText)) return nullptr;
    const ordered_json& text = member_of(part, "text");
    if (!text.is_string()) {
      return complain(member + ".text", "expected a string, found " + shown(text));
    }
    return part_of(text, is_answer);
  }

  ordered_json read_call(const ordered_json& item) {
    if (!has_only("", item, kItemCall)) return nullptr;
    const auto call_id = text_of(item, "call_id");
    const auto name = text_of(item, "name");
    const auto arguments = text_of(item, "arguments");
    if (!call_id || !name || !arguments) return nullptr;
    return in_space(item, {{"id", id_of(item, "fc")},
                           {"type", "function_call"},
                           {"status", "completed"},
                           {"call_id", *call_id},
                           {"name", *name},
                           {"arguments", *arguments}});
  }

  ordered_json read_custom_call(const ordered_json& item) {
    if (!has_only("", item, kItemCustomCall)) return nullptr;
    const auto call_id = text_of(item, "call_id");
    const auto name = text_of(item, "name");
    const auto input = text_of(item, "input");
    if (!call_id || !name || !input) return nullptr;
    return in_space(item, {{"id", id_of(item, "ctc")},
                           {"type", "custom_tool_call"},
                           {"status", "completed"},
                           {"call_id", *call_id},
                           {"name", *name},
                           {"input", *input}});
  }

  // With the namespace of the item.
  ordered_json in_space(const ordered_json& item, ordered_json call) {
    if (member_of(item, "namespace").is_null()) return call;
    const auto space = text_of(item, "namespace");
    if (!space) return nullptr;
    call["namespace"] = *space;
    return call;
  }

  ordered_json read_output(const ordered_json& item, const char* id_start) {
    if (!has_only("", item, kItemOutput)) return nullptr;
    const auto call_id = text_of(item, "call_id");
    if (!call_id) return nullptr;
    const ordered_json& output = member_of(item, "output");
    ordered_json parts = output;
    if (output.is_array()) {
      for (size_t i = 0; i < output.size(); ++i) {
        parts[i] = is_image(output[i]) ? part_of(std::string(kImage), false)
                                       : read_part(fmt::format(".output[{}]", i), output[i], false);
        if (parts[i].is_null()) return nullptr;
      }
    } else if (!output.is_string()) {
      return complain(".output", "expected a string or a list of parts, found " + shown(output));
    }
    return {{"id", id_of(item, id_start)},
            {"type", item["type"]},
            {"status", "completed"},
            {"call_id", *call_id},
            {"output", std::move(parts)}};
  }

  ordered_json read_thought(const ordered_json& item) {
    if (!has_only("", item, kItemReasoning)) return nullptr;
    ordered_json result = {{"id", id_of(item, "rs")}, {"type", "reasoning"}};
    const std::pair<const char*, const char*> kLists[] = {{"summary", "summary_text"},
                                                          {"content", "reasoning_text"}};
    for (const auto& [name, type] : kLists) {
      const ordered_json& list = member_of(item, name);
      result[name] = ordered_json::array();
      if (!list.is_null() && !list.is_array()) {
        return complain(fmt::format(".{}", name), "expected a list, found " + shown(list));
      }
      for (size_t i = 0; i < list.size(); ++i) {
        const ordered_json& text = member_of(list[i], "text");
        if (member_of(list[i], "type") != type || !text.is_string()) {
          return complain(fmt::format(".{}[{}]", name, i),
                          fmt::format("expected {{\"type\": \"{}\", \"text\": …}}, found {}", type,
                                      shown(list[i])));
        }
        if (!has_only(fmt::format(".{}[{}]", name, i), list[i], kItemReasoningText)) return nullptr;
        result[name].push_back({{"type", type}, {"text", text}});
      }
    }
    result["status"] = "completed";
    return result;
  }

  BodyReader& body_;
  const std::string place_;
  const size_t number_;  // of the item in the conversation, for its id
};

std::string joined(const ordered_json& parts) {
  if (parts.is_string()) return parts;
  std::string text;
  for (const ordered_json& part : parts) text += part["text"].get_ref<const std::string&>();
  return text;
}

// The reasoning itself, or if there is none, its summary.
std::string thought_of(const ordered_json& item) {
  return joined(item["content"].empty() ? item["summary"] : item["content"]);
}

class Messages {
 public:
  void add_system(const std::string& role, const std::string& text) {
    if (!all_system_) return add(role, text);
    if (messages_.empty()) return add_first(role, text);
    ordered_json& first = messages_.front();
    first["role"] = "system";
    append_text(first["content"], text);
  }
  void add(const std::string& role, const std::string& text) {
    all_system_ = false;
    is_answering_ = false;
    messages_.push_back({{"role", role}, {"content", text}});
  }
  void add_answer(const std::string& text) {
    ordered_json& message = answer({"content", "tool_calls"});
    message["content"] = text;
  }
  void add_thought(const std::string& text) {
    if (text.empty()) return;
    append_text(answer({"content", "tool_calls"})["reasoning_content"], text);
  }
  void add_call(const ordered_json& item) {
    const ordered_json& space = member_of(item, "namespace");
    const std::string name = function_in(space.is_null() ? "" : space.get<std::string>(),
                                         item["name"].get_ref<const std::string&>());
    const bool is_custom = item["type"] == "custom_tool_call";
    answer({})["tool_calls"].push_back(
        {{"id", item["call_id"]},
         {"type", "function"},
         {"function",
          {{"name", name},
           {"arguments", is_custom ? CustomInput::arguments(item["input"])
                                   : item["arguments"].get<std::string>()}}}});
    names_[item["call_id"]] = name;
  }
  // False: there was no such call.
  bool add_output(const ordered_json& item) {
    const auto name = names_.find(item["call_id"].get_ref<const std::string&>());
    if (name == names_.end()) return false;
    add("tool", joined(item["output"]));
    messages_.back()["tool_call_id"] = item["call_id"];
    messages_.back()["name"] = name->second;
    return true;
  }
  ordered_json take() {
    for (ordered_json& message : messages_) {
      if (message.contains("content")) continue;
      message["content"] = message.contains("tool_calls") ? ordered_json() : ordered_json("");
    }
    return std::move(messages_);
  }

 private:
  void add_first(const std::string& role, const std::string& text) {
    add(role, text);
    all_system_ = true;
  }

  // The assistant's message that is being put together; a new one if it has one of these members.
  ordered_json& answer(std::initializer_list<const char*> members) {
    const bool is_full = is_answering_ && std::ranges::any_of(members, [&](const char* name) {
                           return messages_.back().contains(name);
                         });
    if (!is_answering_ || is_full) {
      messages_.push_back({{"role", "assistant"}});
      is_answering_ = true;
      all_system_ = false;
    }
    return messages_.back();
  }

  ordered_json messages_ = ordered_json::array();
  std::map<std::string, std::string, std::less<>> names_;  // of the functions, by call_id
  bool is_answering_ = false;  // the last message is the assistant's, and may get more
  bool all_system_ = true;     // all so far are in one, the first
};

}  // namespace

void read_input(BodyReader& body, const ordered_json& input, ordered_json* items) {
  if (input.is_string()) {
    ItemReader reader(body, "input", items->size());
    items->push_back(reader.message_of_text(input.get_ref<const std::string&>()));
    return;
  }
  if (!input.is_array() || input.empty()) {
    return body.complain("input", "expected a text, or a list of items that is not empty, found " +
                                      BodyReader::shown(input));
  }
  for (size_t i = 0; i < input.size() && body.is_valid(); ++i) {
    items->push_back(ItemReader(body, fmt::format("input[{}]", i), items->size()).read(input[i]));
  }
}

std::variant<ordered_json, HttpError> item_page(const std::string& conversation,
                                                const ItemPage& wanted) {
  const auto wrong = [](const char* param, const std::string& what) {
    return HttpError{.message = fmt::format("{}: {}", param, what), .param = param};
  };
  constexpr int64_t kMax = 100;
  if (wanted.limit < 1 || wanted.limit > kMax) {
    return wrong("limit", fmt::format("expected 1 to {}, found {}", kMax, wanted.limit));
  }
  if (!wanted.order.empty() && wanted.order != "asc" && wanted.order != "desc") {
    return wrong("order", fmt::format("expected asc or desc, found '{}'",
                                      base::printable(wanted.order, 40)));
  }
  auto items = formats::parse_exact_json(conversation, "conversation");
  const size_t num_items = items->size();
  const auto item = [&](size_t i) -> ordered_json& {
    return (*items)[wanted.order == "asc" ? i : num_items - 1 - i];
  };
  size_t first = 0;
  if (!wanted.after.empty()) {
    while (first < num_items && item(first)["id"] != wanted.after) ++first;
    if (first == num_items) {
      return wrong("after", fmt::format("expected the id of one of the items, found '{}'",
                                        base::printable(wanted.after, 60)));
    }
    ++first;
  }
  const size_t end = std::min(first + static_cast<size_t>(wanted.limit), num_items);
  ordered_json page = {{"object", "list"}, {"data", ordered_json::array()}};
  page["first_id"] = first == end ? ordered_json() : item(first)["id"];
  page["last_id"] = first == end ? ordered_json() : item(end - 1)["id"];
  page["has_more"] = end != num_items;
  for (size_t i = first; i < end; ++i) page["data"].push_back(std::move(item(i)));
  return page;
}

ordered_json messages_of(BodyReader& body, const std::string& instructions,
                         const ordered_json& items) {
  Messages messages;
  if (!instructions.empty()) messages.add_system("system", instructions);
  for (const ordered_json& item : items) {
    const std::string_view type = item["type"].get_ref<const std::string&>();
    if (type == "function_call" || type == "custom_tool_call") {
      messages.add_call(item);
    } else if (type == "reasoning") {
      messages.add_thought(thought_of(item));
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      if (messages.add_output(item)) continue;
      body.complain("input", fmt::format("no function_call of call_id {} comes before its output; "
                                         "send the items of the response, too",
                                         BodyReader::shown(item["call_id"])));
    } else if (item["role"] == "assistant") {
      messages.add_answer(joined(item["content"]));
    } else if (item["role"] == "user") {
      messages.add("user", joined(item["content"]));
    } else {
      messages.add_system(item["role"], joined(item["content"]));
    }
  }
  return messages.take();
}

}  // namespace wideep::server
