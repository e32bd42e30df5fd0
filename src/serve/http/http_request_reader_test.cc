// SPDX-License-Identifier: Apache-2.0
//
// RFC 9112 rule by rule (http_request_cases_testing.h). Each request is read whole, and byte by
// byte, with the same result.
#include "http/http_request_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "http/http_request_cases_testing.h"

namespace wideep::server {
namespace {

using namespace std::string_view_literals;
using testing::HasSubstr;

#define POST "POST / HTTP/1.1\r\nHost: h\r\n"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

constexpr RequestLimits kLimits{.max_body_bytes = 100, .max_header_bytes = 400};

struct Outcome {
  int status = 0;  // of the refusal; 0: the request is complete; −1: it is not
  std::string message;
  RequestHead head;
  std::string body;
  size_t taken = 0;
};

Outcome read(std::string_view text, size_t step) {
  RequestReader reader(kLimits);
  Outcome outcome;
  bool goes_on = true;
  while (goes_on && outcome.taken < text.size()) {
    const std::string_view piece = text.substr(outcome.taken, step);
    const size_t taken = reader.read(piece);
    outcome.taken += taken;
    goes_on = taken == piece.size();
  }
  if (reader.progress() == RequestReader::kRefused) {
    outcome.status = reader.error().status;
    outcome.message = reader.error().message;
  } else if (reader.progress() == RequestReader::kDone) {
    outcome.head = reader.head();
    outcome.body = reader.take_body();
  } else {
    outcome.status = -1;
  }
  return outcome;
}

void check(const RequestCase& each) {
  SCOPED_TRACE(std::string(each.rule) + ": " + std::string(each.request));
  for (const size_t step : {each.request.size(), size_t{1}, size_t{7}}) {
    const Outcome outcome = read(each.request, step);
    EXPECT_EQ(outcome.status, each.status) << outcome.message;
    if (each.status > 0) {
      EXPECT_THAT(outcome.message, HasSubstr(std::string(each.found)));
      EXPECT_EQ(outcome.message.find('\n'), std::string::npos);
    } else if (each.status == 0) {
      EXPECT_EQ(outcome.body, each.found);
    }
  }
}

TEST(RequestReaderTest, LinesOfAMessage) {
  for (const RequestCase& each : kMessageLines) check(each);
}

TEST(RequestReaderTest, RequestLines) {
  for (const RequestCase& each : kRequestLines) check(each);
  const std::string many(500, 'x');
  check(
      {"3 a target that is too long", "GET /" + many + " HTTP/1.1\r\nHost: h\r\n\r\n", 414, "400"});
}

TEST(RequestReaderTest, Hosts) {
  for (const RequestCase& each : kHosts) check(each);
}

TEST(RequestReaderTest, FieldLines) {
  for (const RequestCase& each : kFieldLines) check(each);
  const std::string many(500, 'x');
  check({"9110 5.4", "GET / HTTP/1.1\r\nHost: h\r\nX: " + many + "\r\n\r\n", 431,
         "400 bytes of headers"});
}

// Each takes memory beside its bytes, of which it may have three.
TEST(RequestReaderTest, FieldsAreBounded) {
  RequestLimits limits;
  const auto progress_of = [&](size_t num_fields, size_t* held) {
    std::string head = "GET / HTTP/1.1\r\nHost: h\r\n";
    for (size_t i = 1; i < num_fields; ++i) head += "a:\r\n";
    RequestReader reader(limits);
    reader.read(head + "\r\n");
    *held = reader.held_bytes();
    return reader.progress();
  };
  size_t held = 0;
  EXPECT_EQ(progress_of(limits.max_fields, &held), RequestReader::kDone);
  EXPECT_GT(held, limits.max_fields * sizeof(std::string) * 2);
  EXPECT_LT(held, limits.max_header_bytes);
  EXPECT_EQ(progress_of(limits.max_fields + 1, &held), RequestReader::kRefused);
  RequestReader reader(limits);
  std::string head = "GET / HTTP/1.1\r\n";
  for (size_t i = 0; i <= limits.max_fields; ++i) head += "a:\r\n";
  reader.read(head);
  ASSERT_EQ(reader.progress(), RequestReader::kRefused);
  EXPECT_EQ(reader.error().status, 431);
  EXPECT_THAT(reader.error().message, HasSubstr("at most 128 fields"));
}

TEST(RequestReaderTest, Lengths) {
  for (const RequestCase& each : kLengths) check(each);
  check({"6.2 too large", POST "Content-Length: 101\r\n\r\n", 413, "at most 100 bytes"});
}

TEST(RequestReaderTest, TransferCodings) {
  for (const RequestCase& each : kTransferCodings) check(each);
}

TEST(RequestReaderTest, Chunks) {
  for (const RequestCase& each : kChunks) check(each);
  check({"7.1 too large", CHUNKED "65\r\n", 413, "at most 100 bytes"});
  check({"7.1 too large together", CHUNKED "3\r\nabc\r\n62\r\n", 413, "at most 100 bytes"});
  const std::string many(500, 'x');
  check({"7.1.2 too many", std::string(CHUNKED "0\r\nX: ") + many + "\r\n\r\n", 431, "400 bytes"});
  check({"7.1 an endless size", std::string(CHUNKED) + std::string(5000, '1'), 400, "too long"});
  // 5 bytes of framing for each byte, then 20: at most 600.
  std::string short_chunks = CHUNKED;
  for (int i = 0; i < 100; ++i) short_chunks += "1\r\na\r\n";
  check({"7.1 short chunks", short_chunks + "0\r\n\r\n", 0, std::string(100, 'a')});
  std::string long_sizes = CHUNKED;
  for (int i = 0; i < 32; ++i) long_sizes += "0000000000000001\r\na\r\n";
  check({"7.1 long sizes of short chunks", long_sizes, 400, "too short"});
  std::string extensions = CHUNKED;
  for (int i = 0; i < 50; ++i) extensions += "1;" + std::string(20, 'x') + "\r\na\r\n";
  check({"7.1.1 a limit for all together", extensions, 400, "chunk extensions"});
}

TEST(RequestReaderTest, WhetherTheConnectionGoesOn) {
  const struct {
    const char* request;
    bool keeps_alive;
  } all[] = {
      {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", true},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", false},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: x, Close\r\n\r\n", false},
      {"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n", false},
      {"GET / HTTP/1.0\r\n\r\n", false},
      {"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true},
  };
  for (const auto& each : all) {
    EXPECT_EQ(read(each.request, 1).head.keeps_alive, each.keeps_alive) << each.request;
  }
}

TEST(RequestReaderTest, TheHeadIsAsItCame) {
  const Outcome outcome = read(
      "POST http://h.example?a=%20 HTTP/1.1\r\nHoSt: other\r\nX: 1\r\nx:2 \r\n"
      "Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhiGET /",
      1000);
  EXPECT_EQ(outcome.head.method, "POST");
  EXPECT_EQ(outcome.head.target, "/?a=%20");
  EXPECT_EQ(outcome.head.field("x"), "1, 2");
  EXPECT_EQ(outcome.head.field("host"), "other");
  EXPECT_EQ(outcome.head.field("y"), "");
  EXPECT_TRUE(outcome.head.expects_continue);
  EXPECT_EQ(outcome.body, "hi");
}

// What follows belongs to the next request.
TEST(RequestReaderTest, NothingBeyondTheRequestIsTaken) {
  for (const std::string_view request :
       {"GET / HTTP/1.1\r\nHost: h\r\n\r\n"sv, POST "Content-Length: 3\r\n\r\nabc"sv,
        CHUNKED "3\r\nabc\r\n0\r\nX: y\r\n\r\n"sv}) {
    const std::string two = std::string(request) + "GET /next HTTP/1.1\r\n";
    for (const size_t step : {size_t{1}, size_t{5}, two.size()}) {
      EXPECT_EQ(read(two, step).taken, request.size());
    }
  }
}

}  // namespace
}  // namespace wideep::server
