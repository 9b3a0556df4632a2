# SPDX-License-Identifier: BSD-2-Clause
# bench_capture: what the capture stage costs, off and on.
add_executable(bench_capture ${CMAKE_CURRENT_LIST_DIR}/capture.cc)
target_link_libraries(bench_capture PRIVATE uroce::capture)
