// SPDX-License-Identifier: Apache-2.0
//
// The small text files in which the kernel tells about itself (/proc, /sys). A file that is not
// there, or does not hold what is asked for, is no error: the kernel may be older or built without.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::base {

// Empty when the file cannot be read.
std::vector<std::string> read_lines(const std::string& path);

// The file's first word, a decimal number without sign.
std::optional<uint64_t> read_number(const std::string& path);

// The number of a line "<name> <number>" or "<name>: <number>".
std::optional<uint64_t> read_field(const std::string& path, std::string_view name);

// What stands after "<name>" and ':' with blanks around it; empty when there is no such line.
std::string read_text_field(const std::string& path, std::string_view name);

// A list as the kernel writes it, "0-3,8,10-11", in its order; at most 2^16 numbers.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace wideep::base
