// SPDX-License-Identifier: BSD-2-Clause
// What `uroce stat` prints for programs; docs/monitoring.md describes both.
#pragma once

#include <string>

#include "cli/stat_figures.h"

namespace uroce::cli {

std::string stat_json(const Figures& figures);
// The text format of Prometheus, version 0.0.4.
std::string stat_prometheus(const Figures& figures);

}  // namespace uroce::cli
