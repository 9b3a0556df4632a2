# SPDX-License-Identifier: BSD-2-Clause
# bench_placement: placing payload in order against memcpy.
find_package(benchmark REQUIRED)

add_executable(bench_placement ${CMAKE_CURRENT_LIST_DIR}/placement.cc)
target_link_libraries(bench_placement PRIVATE uroce::memory uroce::wire benchmark::benchmark)
