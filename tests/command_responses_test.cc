// SPDX-License-Identifier: Apache-2.0
// An agent that speaks OpenAI's Responses API to `wideep serve`: ten turns with tools, whole and
// streamed, with all items sent each time, or gone on from a stored response. The model knows
// nothing of tools, so that every call must come.
#include <gtest/gtest.h>

#include <csignal>
#include <set>
#include <string>
#include <string_view>

#include "command_server.h"
#include "fault_load.h"

namespace wideep::tests {
namespace {

using nlohmann::json;
using server::Reply;

constexpr const char* kReference = WIDEEP_SOURCE_DIR "/models/reference";

json tools() {
  return json::parse(R"([
    {"type": "function", "name": "look_up", "parameters": {"type": "object",
      "properties": {"city": {"type": "string", "enum": ["Bern", "Paris \"1\""]},
                     "days": {"type": "integer", "minimum": 1, "maximum": 14}},
      "required": ["city", "days"]}},
    {"type": "function", "name": "stop"}])");
}

// The response that the last event of a stream has.
json last_response(const Reply& reply) {
  constexpr std::string_view kData = "\ndata: ";
  const size_t at = reply.body.rfind(kData);
  if (at == reply.body.npos) return {};
  return json::parse(reply.body.substr(at + kData.size()))["response"];
}

json call_of(const json& response) {
  for (const json& item : response["output"]) {
    if (item["type"] == "function_call") return item;
  }
  return {};
}

TEST(CommandResponses, AnAgentGoesOn) {
  Server server(kReference, {"--ranks", "2", "--tool-call-parser", "hermes"});
  ASSERT_GT(server.port(), 0);
  json sent = {{{"role", "user"}, {"content", "What is 3 + 4?"}}};
  json next = sent;  // what a stored response has not seen
  json previous;
  std::set<std::string> ids;
  for (int turn = 0; turn < 10; ++turn) {
    json body = {{"model", "m"},
                 {"input", sent},
                 {"tools", tools()},
                 {"tool_choice", "required"},
                 {"max_output_tokens", 100},
                 {"parallel_tool_calls", false},
                 {"stream", turn % 2 == 1},
                 {"seed", turn}};
    if (turn % 3 == 2) body["tool_choice"] = {{"type", "function"}, {"name", "look_up"}};
    const auto ask = [&] {
      const Reply reply = server::ask(server.port(), "POST", "/v1/responses", body.dump());
      EXPECT_EQ(reply.status, 200) << reply.body;
      return turn % 2 == 1 ? last_response(reply) : reply.body_json();
    };
    const json response = ask();
    const json call = call_of(response);
    ASSERT_TRUE(call.is_object()) << response;
    EXPECT_TRUE(ids.insert(call["call_id"]).second) << call;
    const json arguments = json::parse(call["arguments"].get<std::string>(), nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << call;
    if (turn % 3 == 2) {
      EXPECT_EQ(call["name"], "look_up");
      EXPECT_TRUE(arguments["days"] >= 1 && arguments["days"] <= 14) << call;
    }
    // The same conversation from the store has the same answer.
    body["input"] = next;
    body["store"] = true;
    if (!previous.is_null()) body["previous_response_id"] = previous;
    const json stored = ask();
    EXPECT_EQ(call_of(stored)["arguments"], call["arguments"]);
    EXPECT_EQ(call_of(stored)["name"], call["name"]);
    previous = stored["id"];
    for (const json& item : response["output"]) sent.push_back(item);
    sent.push_back(
        {{"type", "function_call_output"}, {"call_id", call["call_id"]}, {"output", "7"}});
    next = {{{"type", "function_call_output"},
             {"call_id", call_of(stored)["call_id"]},
             {"output", "7"}}};
  }
  const json last = {{"model", "m"}, {"input", sent}, {"max_output_tokens", 8}};
  const Reply reply = server::ask(server.port(), "POST", "/v1/responses", last.dump());
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_FALSE(call_of(reply.body_json()).is_object());
  EXPECT_EQ(server.metric("wideep_stored_responses"), 10);
}

// The process that serves HTTP dies in the middle of a stream that goes on from a stored response:
// the next one has lost the store, but neither the stream nor what it goes on from.
TEST(CommandResponses, AStreamOutlivesTheServingProcess) {
  Server server(kReference, {"--ranks", "2"});
  ASSERT_GT(server.port(), 0);
  const auto respond = [&](const json& body) {
    return server::ask(server.port(), "POST", "/v1/responses", body.dump());
  };
  const auto status_of = [&](const json& id) {
    return server::ask(server.port(), "GET", "/v1/responses/" + id.get<std::string>()).status;
  };
  const json first = {{"model", "m"}, {"input", "Hi"}, {"max_output_tokens", 4}, {"store", true}};
  const json from = respond(first).body_json()["id"];
  const json other = respond(first).body_json()["id"];
  json body = {{"model", "m"},       {"input", "Go on"},
               {"seed", 5},          {"max_output_tokens", 150},
               {"ignore_eos", true}, {"previous_response_id", from},
               {"store", true}};
  const json undisturbed = respond(body).body_json();
  body["stream"] = true;
  const std::string text = body.dump();
  server::Socket client(server.port());
  client.set_patience(60);
  client.send("POST /v1/responses HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: " +
              std::to_string(text.size()) + "\r\n\r\n" + text);
  std::string stream = client.receive();
  ASSERT_NE(stream.find("200 OK"), std::string::npos) << stream;
  ::kill(front_processes(server.command()).at(0), SIGKILL);
  EXPECT_EQ(stream.find("response.incomplete"), std::string::npos) << "killed too late";
  stream += client.receive_all();
  const Reply reply{
      .status = 200,
      .head = "",
      .body = server::without_chunk_lengths(stream.substr(stream.find("\r\n\r\n") + 4))};
  const json streamed = last_response(reply);
  ASSERT_TRUE(streamed.is_object()) << stream;
  EXPECT_EQ(streamed["status"], "incomplete");
  EXPECT_EQ(streamed["output"][0]["content"][0]["text"],
            undisturbed["output"][0]["content"][0]["text"]);
  EXPECT_EQ(server.metric("wideep_serving_processes_died_total"), 1);
  EXPECT_EQ(status_of(streamed["id"]), 200);
  // What that process had stored is gone with it; the one that the stream goes on from was lent.
  EXPECT_EQ(status_of(from), 404);
  EXPECT_EQ(status_of(other), 404);
}

TEST(CommandResponses, NoneMayBeStored) {
  Server server(kReference, {"--max-stored-responses", "0"});
  ASSERT_GT(server.port(), 0);
  const json body = {{"model", "m"}, {"input", "Hi"}, {"max_output_tokens", 2}, {"store", true}};
  const Reply reply = server::ask(server.port(), "POST", "/v1/responses", body.dump());
  EXPECT_EQ(reply.status, 400);
  EXPECT_NE(reply.body.find("store: at most 0 responses"), std::string::npos) << reply.body;
}

}  // namespace
}  // namespace wideep::tests
