# SPDX-License-Identifier: BSD-2-Clause
# bench_icrc: our CRC-32 and ICRC against memcpy and ISA-L.
find_package(benchmark REQUIRED)
find_library(ISAL_LIBRARY isal REQUIRED)

add_executable(bench_icrc ${CMAKE_CURRENT_LIST_DIR}/icrc.cc)
target_link_libraries(bench_icrc PRIVATE uroce::wire benchmark::benchmark ${ISAL_LIBRARY})
