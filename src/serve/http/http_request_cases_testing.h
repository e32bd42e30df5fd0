// SPDX-License-Identifier: Apache-2.0
//
// For tests: RFC 9112 rule by rule, as requests and what the rule makes of each. None of them
// depends on a server's limits.
#pragma once

#include <string_view>

namespace wideep::server {

using namespace std::string_view_literals;

struct RequestCase {
  const char* rule;  // section of RFC 9112, or of RFC 9110 where it says so
  std::string_view request;
  int status;                   // of the refusal; 0: the request is complete; −1: it is not
  std::string_view found = "";  // the body, or a part of the message
};

#define WIDEEP_POST "POST / HTTP/1.1\r\nHost: h\r\n"
#define WIDEEP_CHUNKED WIDEEP_POST "Transfer-Encoding: chunked\r\n\r\n"

inline constexpr RequestCase kMessageLines[] = {
    {"2.1 a message", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"2.1 incomplete", "GET / HTTP/1.1\r\nHost: h\r\n", -1},
    {"2.2 one LF may end a line; here it may not", "GET / HTTP/1.1\nHost: h\n\n", 400, "LF alone"},
    {"2.2 LF alone in a field line", "GET / HTTP/1.1\r\nHost: h\nX: y\r\n\r\n", 400, "LF alone"},
    {"2.2 LF alone at the end", "GET / HTTP/1.1\r\nHost: h\r\n\n", 400, "LF alone"},
    {"2.2 CR alone", "GET / HTTP/1.1\r\nHost: h\r\nX: a\rY: b\r\n\r\n", 400, "control"},
    {"2.2 CR alone ends no line", "GET / HTTP/1.1\rHost: h\r\r", -1},
    {"2.2 CR CR LF", "GET / HTTP/1.1\r\nHost: h\r\r\n\r\n", 400, "control"},
    {"2.2 CR in the request line", "GET /\r HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"2.2 an empty line before", "\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"2.2 white space before the first field", "GET / HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n", 400,
     "begins with white space"},
    {"2.2 other protocols", "\x16\x03\x01\x02\r\n\r\n"sv, 400, "request line"},
    {"2.2 other protocols", "SSH-2.0-OpenSSH_9.2\r\n", 400, "request line"},
};

inline constexpr RequestCase kRequestLines[] = {
    {"2.3 version", "GET / HTTP/1.0\r\n\r\n", 0},
    {"2.3 a later minor version", "GET / HTTP/1.9\r\nHost: h\r\n\r\n", 0},
    {"2.3 another major version", "GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, "HTTP/1.1"},
    {"2.3 the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "HTTP/1.1"},
    {"2.3 an earlier one", "GET / HTTP/0.9\r\n\r\n", 505, "HTTP/1.1"},
    {"2.3 case", "GET / http/1.1\r\nHost: h\r\n\r\n", 400, "version"},
    {"2.3 digits", "GET / HTTP/1.\r\nHost: h\r\n\r\n", 400, "version"},
    {"2.3 digits", "GET / HTTP/11.1\r\nHost: h\r\n\r\n", 400, "version"},
    {"2.3 digits", "GET / HTTP/1.10\r\nHost: h\r\n\r\n", 400, "version"},
    {"2.3 another name", "GET / HTP/1.1\r\nHost: h\r\n\r\n", 400, "version"},
    {"3 without a version", "GET /\r\n\r\n", 400, "request line"},
    {"3 single spaces", "GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3 single spaces", "GET /  HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3 a space at the end", "GET / HTTP/1.1 \r\nHost: h\r\n\r\n", 400, "version"},
    {"3 a space in front", " GET / HTTP/1.1\r\nHost: h\r\n\r\n", 400, "method"},
    {"3 tabs", "GET\t/\tHTTP/1.1\r\nHost: h\r\n\r\n", 400, "request line"},
    {"3 a space in the target", "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.1 any token is a method", "M-SEARCH! / HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.1 no token", "GE(T / HTTP/1.1\r\nHost: h\r\n\r\n", 400, "method"},
    {"3.1 NUL", "G\0T / HTTP/1.1\r\nHost: h\r\n\r\n"sv, 400, "method"},
    {"3.2.1 origin form", "GET /a/b?c=d&e HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2.1 no path", "GET a HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2.2 absolute form", "GET http://h:80/a?b HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2.2 any case", "GET HTTP://h HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2.2 without a host", "GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2.2 with a user (RFC 9110 4.2.4)", "GET http://u@h/ HTTP/1.1\r\nHost: h\r\n\r\n", 400,
     "target"},
    {"3.2.3 authority form", "CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2.3 for CONNECT alone", "GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2.3 with a port", "CONNECT h HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2.4 asterisk form", "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2.4 for OPTIONS alone", "GET * HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2 characters of a URI", "GET /a\"b HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2 a fragment", "GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2 bytes above 127", "GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2 NUL", "GET /a\0b HTTP/1.1\r\nHost: h\r\n\r\n"sv, 400, "target"},
    {"3.2 percent", "GET /%c3%A4 HTTP/1.1\r\nHost: h\r\n\r\n", 0},
    {"3.2 half a percent", "GET /%4 HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
    {"3.2 half a percent", "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n", 400, "target"},
};

inline constexpr RequestCase kHosts[] = {
    {"3.2 none", "GET / HTTP/1.1\r\n\r\n", 400, "one Host header, found 0"},
    {"3.2 two", "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", 400, "one Host header, found 2"},
    {"3.2 two of HTTP/1.0", "GET / HTTP/1.0\r\nHost: h\r\nhost: i\r\n\r\n", 400, "found 2"},
    {"3.2 empty", "GET / HTTP/1.1\r\nHost:\r\n\r\n", 0},
    {"3.2 with a port", "GET / HTTP/1.1\r\nHost: h.example:8000\r\n\r\n", 0},
    {"3.2 IPv6", "GET / HTTP/1.1\r\nHost: [::1]:8000\r\n\r\n", 0},
    {"3.2 two hosts in one", "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", 400, "Host: expected"},
    {"3.2 a path", "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "Host: expected"},
    {"3.2 a user", "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "Host: expected"},
    {"3.2 a port of letters", "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400, "Host: expected"},
    {"3.2 two ports", "GET / HTTP/1.1\r\nHost: a:1:2\r\n\r\n", 400, "Host: expected"},
};

inline constexpr RequestCase kFieldLines[] = {
    {"5 without white space", "GET / HTTP/1.1\r\nHost:h\r\nX:y\r\n\r\n", 0},
    {"5 white space around a value", "GET / HTTP/1.1\r\nHost: \t h \t \r\n\r\n", 0},
    {"5 an empty value", "GET / HTTP/1.1\r\nHost: h\r\nX:\r\n\r\n", 0},
    {"5 bytes above 127 in a value", "GET / HTTP/1.1\r\nHost: h\r\nX: \xc3\xa4\r\n\r\n", 0},
    {"5 no colon", "GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", 400, "name: value"},
    {"5 no name", "GET / HTTP/1.1\r\nHost: h\r\n: y\r\n\r\n", 400, "before the colon"},
    {"5 a name that is no token", "GET / HTTP/1.1\r\nHost: h\r\nX(y): z\r\n\r\n", 400, "colon"},
    {"5 bytes above 127 in a name", "GET / HTTP/1.1\r\nHost: h\r\n\xc3\xa4: z\r\n\r\n", 400,
     "colon"},
    {"5.1 a space before the colon", "GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400, "before the colon"},
    {"5.1 a tab before the colon", "GET / HTTP/1.1\r\nHost: h\r\nX\t: y\r\n\r\n", 400, "colon"},
    {"5.1 before a length", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length : 1\r\n\r\na", 400,
     "colon"},
    {"5.1 before a coding", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n",
     400, "colon"},
    {"5.2 folded lines", "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", 400, "white space"},
    {"5.2 folded by a tab", "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", 400, "white space"},
    {"5.2 folded to nothing", "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n \r\n\r\n", 400, "white space"},
    {"9110 5.5 NUL", "GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"sv, 400, "control"},
    {"9110 5.5 NUL in a name", "GET / HTTP/1.1\r\nHost: h\r\nX\0: b\r\n\r\n"sv, 400, "colon"},
    {"9110 5.5 control characters", "GET / HTTP/1.1\r\nHost: h\r\nX: a\x01\r\n\r\n", 400,
     "control"},
    {"9110 5.5 delete", "GET / HTTP/1.1\r\nHost: h\r\nX: a\x7f\r\n\r\n", 400, "control"},
    {"9110 10.1.1 expectations", "POST / HTTP/1.1\r\nHost: h\r\nExpect: more\r\n\r\n", 417, "more"},
    {"9110 10.1.1 any case", "GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\n\r\n", 0},
    {"9110 10.1.1 of HTTP/1.0", "GET / HTTP/1.0\r\nExpect: more\r\n\r\n", 0},
};

inline constexpr RequestCase kLengths[] = {
    {"6.2 a length", WIDEEP_POST "Content-Length: 3\r\n\r\nabc", 0, "abc"},
    {"6.2 incomplete", WIDEEP_POST "Content-Length: 3\r\n\r\nab", -1},
    {"6.2 zeros in front", WIDEEP_POST "Content-Length: 003\r\n\r\nabc", 0, "abc"},
    {"6.2 a sign", WIDEEP_POST "Content-Length: +3\r\n\r\nabc", 400, "one number, found '+3'"},
    {"6.2 a sign", WIDEEP_POST "Content-Length: -3\r\n\r\nabc", 400, "one number"},
    {"6.2 hexadecimal", WIDEEP_POST "Content-Length: 0x3\r\n\r\nabc", 400, "one number"},
    {"6.2 a fraction", WIDEEP_POST "Content-Length: 3.0\r\n\r\nabc", 400, "one number"},
    {"6.2 a space inside", WIDEEP_POST "Content-Length: 3 0\r\n\r\nabc", 400, "one number"},
    {"6.2 letters", WIDEEP_POST "Content-Length: many\r\n\r\nabc", 400, "one number"},
    {"6.2 empty", WIDEEP_POST "Content-Length:\r\n\r\nabc", 400, "one number"},
    {"6.2 digits of another script", WIDEEP_POST "Content-Length: \xd9\xa3\r\n\r\nabc", 400,
     "one number"},
    {"6.2 beyond 64 bits", WIDEEP_POST "Content-Length: 18446744073709551619\r\n\r\nabc", 413,
     "at most"},
    {"6.3 two lengths", WIDEEP_POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 400,
     "3, 4"},
    {"6.3 two in one", WIDEEP_POST "Content-Length: 3, 4\r\n\r\nabcd", 400, "3, 4"},
    {"6.3 equal ones may be refused",
     WIDEEP_POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "3, 3"},
    {"6.3 beside an empty one", WIDEEP_POST "Content-Length: 3\r\nContent-Length:\r\n\r\nabc", 400,
     "3, "},
    {"6.3 neither length nor coding", WIDEEP_POST "\r\n", 0, ""},
    {"6.3 of HTTP/1.0", "POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", 0, "abc"},
    {"9110 9.3.1 GET may have content", "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
     0, "abc"},
};

inline constexpr RequestCase kTransferCodings[] = {
    {"6.1 chunked", WIDEEP_POST "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0,
     "abc"},
    {"6.1 any case", WIDEEP_POST "transfer-encoding: Chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 0,
     "abc"},
    {"6.1 with a length",
     WIDEEP_POST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400,
     "found both"},
    {"6.1 the length in front",
     WIDEEP_POST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", 400, "found both"},
    {"6.1 of HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
     "HTTP/1.0"},
    {"6.1 twice", WIDEEP_POST "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400,
     "once and last"},
    {"6.1 twice",
     WIDEEP_POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400,
     "once and last"},
    {"6.1 an unknown coding", WIDEEP_POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501,
     "gzip"},
    {"6.1 in two fields",
     WIDEEP_POST "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n", 501, "gzip"},
    {"6.3 chunked is not the last", WIDEEP_POST "Transfer-Encoding: chunked, gzip\r\n\r\n", 400,
     "last"},
    {"6.3 no chunked at all", WIDEEP_POST "Transfer-Encoding: gzip\r\n\r\nabc", 400,
     "once and last"},
    {"6.3 identity", WIDEEP_POST "Transfer-Encoding: identity\r\n\r\nabc", 400, "once and last"},
    {"6.3 empty", WIDEEP_POST "Transfer-Encoding:\r\n\r\nabc", 400, "once and last"},
    {"7 a vertical tab before it",
     WIDEEP_POST "Transfer-Encoding: \x0b"
                 "chunked\r\n\r\n",
     400, "control"},
    {"7 quoted", WIDEEP_POST "Transfer-Encoding: \"chunked\"\r\n\r\n", 400, "once and last"},
    {"7 with a parameter", WIDEEP_POST "Transfer-Encoding: chunked;a=1\r\n\r\n", 400,
     "once and last"},
    {"7 of a longer name", WIDEEP_POST "Transfer-Encoding: xchunked\r\n\r\n", 400, "once and last"},
};

inline constexpr RequestCase kChunks[] = {
    {"7.1 two chunks", WIDEEP_CHUNKED "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", 0,
     "abc0123456789"},
    {"7.1 any case", WIDEEP_CHUNKED "a\r\n0123456789\r\n0\r\n\r\n", 0, "0123456789"},
    {"7.1 zeros in front", WIDEEP_CHUNKED "0003\r\nabc\r\n000\r\n\r\n", 0, "abc"},
    {"7.1 none", WIDEEP_CHUNKED "0\r\n\r\n", 0, ""},
    {"7.1 incomplete", WIDEEP_CHUNKED "3\r\nabc\r\n0\r\n", -1},
    {"7.1 a sign", WIDEEP_CHUNKED "+3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal, found '+3'"},
    {"7.1 a sign", WIDEEP_CHUNKED "-3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1 a prefix", WIDEEP_CHUNKED "0x3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1 an underscore", WIDEEP_CHUNKED "1_0\r\n", 400, "hexadecimal"},
    {"7.1 white space in front", WIDEEP_CHUNKED " 3\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1 white space after it", WIDEEP_CHUNKED "3 \r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1 an empty line", WIDEEP_CHUNKED "\r\n", 400, "hexadecimal"},
    {"7.1 letters", WIDEEP_CHUNKED "xyz\r\n", 400, "hexadecimal"},
    {"7.1 LF alone", WIDEEP_CHUNKED "3\nabc\r\n0\r\n\r\n", 400, "LF alone"},
    {"7.1 more data than its size", WIDEEP_CHUNKED "3\r\nabcd\r\n0\r\n\r\n", 400,
     "after a chunk's data"},
    {"7.1 no CR LF after the data", WIDEEP_CHUNKED "3\r\nabc0\r\n\r\n", 400,
     "after a chunk's data"},
    {"7.1 LF alone after the data", WIDEEP_CHUNKED "3\r\nabc\n0\r\n\r\n", 400, "LF alone"},
    {"7.1 leading zeros", WIDEEP_CHUNKED "0000000000000003\r\nabc\r\n0\r\n\r\n", 0, "abc"},
    {"7.1 too many of them", WIDEEP_CHUNKED "00000000000000003\r\nabc\r\n0\r\n\r\n", 400,
     "16 digits"},
    {"7.1 too many at the end", WIDEEP_CHUNKED "3\r\nabc\r\n00000000000000000\r\n\r\n", 400,
     "16 digits"},
    {"7.1 beyond 64 bits", WIDEEP_CHUNKED "10000000000000003\r\nabc", 413, "at most"},
    {"7.1.1 an extension", WIDEEP_CHUNKED "3;a=1\r\nabc\r\n0;b\r\n\r\n", 0, "abc"},
    {"7.1.1 white space", WIDEEP_CHUNKED "3 ; a = 1 ;\tb\r\nabc\r\n0\r\n\r\n", 0, "abc"},
    {"7.1.1 quoted", WIDEEP_CHUNKED "3;a=\"x;\\\"y\"\r\nabc\r\n0\r\n\r\n", 0, "abc"},
    {"7.1.1 without a name", WIDEEP_CHUNKED "3;\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1.1 without a value", WIDEEP_CHUNKED "3;a=\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1.1 a quote that does not end", WIDEEP_CHUNKED "3;a=\"x\r\nabc\r\n0\r\n\r\n", 400,
     "hexadecimal"},
    {"7.1.1 control characters", WIDEEP_CHUNKED "3;a=\"\x01\"\r\nabc\r\n0\r\n\r\n", 400,
     "hexadecimal"},
    {"7.1.1 CR alone", WIDEEP_CHUNKED "3;a\rb\r\nabc\r\n0\r\n\r\n", 400, "hexadecimal"},
    {"7.1.2 trailers", WIDEEP_CHUNKED "3\r\nabc\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n", 0,
     "abc"},
    {"7.1.2 no field", WIDEEP_CHUNKED "0\r\nX\r\n\r\n", 400, "name: value"},
    {"7.1.2 folded", WIDEEP_CHUNKED "0\r\nX: y\r\n z\r\n\r\n", 400, "white space"},
};

#undef WIDEEP_CHUNKED
#undef WIDEEP_POST

}  // namespace wideep::server
