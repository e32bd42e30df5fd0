// SPDX-License-Identifier: Apache-2.0
//
// Reads the kernel's small text files in /proc and /sys. A missing file or field is no error,
// because older kernels and other configurations lack some: functions then return an empty value.
//
// Thread safety: pure functions that read files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace wideep::base {

// The file's lines; empty when it cannot be read.
std::vector<std::string> read_lines(const std::string& path);

// The file's first word, a decimal number without sign.
std::optional<uint64_t> read_number(const std::string& path);

// The number of a line "<name> <number>" or "<name>: <number>".
std::optional<uint64_t> read_field(const std::string& path, std::string_view name);

// The text after "<name>:" without the blanks around it; empty when there is no such line.
std::string read_text_field(const std::string& path, std::string_view name);

// The numbers of a list in the kernel's form, "0-3,8,10-11", in the order written. Items that are
// malformed or hold a number of 2^16 or more are left out.
std::vector<int> parse_cpu_list(std::string_view text);

}  // namespace wideep::base
