// SPDX-License-Identifier: BSD-2-Clause
// What `uroce stat` prints for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/stat_figures.h"

namespace uroce::cli {

// "0", "0.5", "12.3", "999", "1.23k", "45.6G"
std::string short_number(double value);

// Tables of processes, QPs and drops, the busiest first, without line ends. `rows`, if it is not 0: no more lines than
// that; what is left out is said.
std::vector<std::string> stat_lines(const Figures& figures, size_t rows = 0);
// Which of them are headings.
bool is_heading(const std::string& line);

// A line for each device of a process, for output that goes on and on; and what stands above them.
std::vector<std::string> stat_rows(const Figures& figures, const std::string& time);
std::string stat_rows_heading();

}  // namespace uroce::cli
