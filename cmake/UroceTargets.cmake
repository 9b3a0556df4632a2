# SPDX-License-Identifier: BSD-2-Clause
# Shared target settings: warnings are errors, sanitizers by preset, precompiled headers, one function per kind of target.

option(UROCE_WERROR "Warnings are errors; in packages and the preset demo, whose compilers are others, they are not" ON)
add_library(uroce_options INTERFACE)
target_compile_options(uroce_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough -Wcast-align $<$<BOOL:${UROCE_WERROR}>:-Werror>>
  $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-deprecated-enum-enum-conversion>)  # ibv_reg_mr(), a macro, mixes two enums
target_include_directories(uroce_options INTERFACE ${CMAKE_SOURCE_DIR})

# What was compiled once is not compiled again, in whichever checkout.
find_program(UROCE_CCACHE ccache)
if(UROCE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/cmake/ccache.sh ${PROJECT_SOURCE_DIR})
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

set(UROCE_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
if(UROCE_SANITIZE)
  add_compile_options(-fsanitize=${UROCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${UROCE_SANITIZE})
  find_program(UROCE_LLD ld.lld-14)
  if(UROCE_LLD AND CMAKE_CXX_COMPILER_ID MATCHES Clang)  # quicker; what users run is linked as their distribution does it
    add_link_options(-fuse-ld=lld)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")  # so that ccache can be used
endif()

# uroce_precompiled(name [OPTIONS ...] [DEPENDS ...] HEADERS ...): the headers compiled once, for targets with the same
# compiler options. Sources include what they need all the same: they compile without it, only more slowly.
function(uroce_precompiled name)
  cmake_parse_arguments(ARG "" "" "OPTIONS;DEPENDS;HEADERS" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/precompiled/${name}.cc)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "")
  endif()
  add_library(${name} STATIC EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${name} PRIVATE uroce_options ${ARG_DEPENDS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
endfunction()

# For a library that is loaded into programs of others: it brings no libstdc++, of which the program may have another
# version, and nothing that it does not call. A sanitizer's run-time wants the shared one. The version script has to hide
# what is linked statically. libgcc_s stays shared: pthread_cancel() unwinds with it through our frames, and must not meet
# a second unwinder there.
function(uroce_in_foreign_processes name)
  target_link_options(${name} PRIVATE -Wl,--as-needed)
  if(NOT UROCE_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/base/arc4random.cc)
    set_source_files_properties(${PROJECT_SOURCE_DIR}/base/arc4random.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
endfunction()

set(UROCE_COMMON_HEADERS
  <algorithm> <array> <atomic> <cerrno> <chrono> <cstdint> <cstring> <deque> <functional> <map> <memory> <mutex>
  <optional> <span> <string> <string_view> <system_error> <utility> <variant> <vector>)
set(UROCE_LIBRARY_OPTIONS)
if(UROCE_FUZZ)
  set(UROCE_LIBRARY_OPTIONS -fsanitize=fuzzer-no-link)  # coverage for libFuzzer, without its main()
endif()
uroce_precompiled(uroce_product_headers OPTIONS ${UROCE_LIBRARY_OPTIONS} HEADERS ${UROCE_COMMON_HEADERS})

# A build directory keeps what it began with; tools/test begins with ON.
option(UROCE_UNITY "Compile a dozen sources at once" $ENV{UROCE_UNITY})

# uroce_unity(target): with UROCE_UNITY its sources are compiled a dozen at once: quicker for all of them, slower when one
# has changed. Names in anonymous namespaces have to be different for that, which tools/lint wants of the product as well. What a
# neighbour hides, as a missing #include, shows elsewhere: there each source is compiled by itself. A source with compiler
# options of its own stays alone. (CMake's own unity builds name sources by absolute paths, so that ccache would find nothing
# of another checkout.)
set(UROCE_UNITY_BATCH 12)
function(uroce_unity target)
  if(UROCE_UNITY)  # when all sources are known
    cmake_language(EVAL CODE "cmake_language(DEFER CALL uroce_join_sources [[${target}]])")
  endif()
endfunction()
function(uroce_join_sources target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(unity ${target} UNITY_BUILD)
  if(unity STREQUAL OFF)
    return()
  endif()
  set(kept)
  set(joined)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    get_source_file_property(generated ${source} GENERATED)
    if(source MATCHES "\\.cc$" AND NOT options AND NOT definitions AND NOT alone AND NOT generated)
      cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
      cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND joined ${path})
    else()
      list(APPEND kept ${source})
    endif()
  endforeach()
  list(LENGTH joined count)
  set(first 0)
  while(first LESS count)
    list(SUBLIST joined ${first} ${UROCE_UNITY_BATCH} batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n")
    list(JOIN batch "" batch)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${first}.cc)
    file(CONFIGURE OUTPUT ${file} CONTENT "${batch}" @ONLY)
    list(APPEND kept ${file})
    math(EXPR first "${first} + ${UROCE_UNITY_BATCH}")
  endwhile()
  set_property(TARGET ${target} PROPERTY SOURCES ${kept})
endfunction()

# uroce_library(name SOURCES ... [DEPENDS ...]): a static library of one directory, alias uroce::name. Built when something
# needs it.
function(uroce_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(uroce_${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  add_library(uroce::${name} ALIAS uroce_${name})
  target_link_libraries(uroce_${name} PUBLIC uroce_options ${ARG_DEPENDS})
  target_compile_options(uroce_${name} PRIVATE ${UROCE_LIBRARY_OPTIONS})
  target_precompile_headers(uroce_${name} REUSE_FROM uroce_product_headers)
  uroce_unity(uroce_${name})
endfunction()

# Tests. Each is compiled in one of the builds of tools/test, the one in which it finds most (some with threads in two):
#   sanitize  unit suites, whatever a fuzzer drives: clang, ASan and UBSan. The default of the functions below.
#   tsan      what has threads
#   release   what tests the product as it is shipped: preloaded, between hosts, for minutes of virtual time
# A preset says in UROCE_TESTS which of them it has.
set(UROCE_TESTS ON CACHE STRING "The tests to build: of release, sanitize, tsan; ON: all but tsan; OFF: none")
if(UROCE_TESTS STREQUAL "ON")
  set(UROCE_TESTS release sanitize)
endif()

# Test code is compiled for the compiler's speed; the code under test keeps the preset's optimisation.
set(UROCE_TEST_OPTIONS -O0 -g1 -fPIE)
set(UROCE_PROGRAM_OPTIONS -O1 -g1 -fPIE)  # programs that move data

# uroce_wanted(variable BUILD...): the first of the builds whose tests this preset has, or nothing.
function(uroce_wanted variable)
  set(${variable} "" PARENT_SCOPE)
  foreach(build IN LISTS ARGN)
    if(build IN_LIST UROCE_TESTS)
      set(${variable} ${build} PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# uroce_add_test(NAME name COMMAND ... [IN BUILD...] [LABELS ...] [TIMEOUT seconds] [LOAD quarters] [CONFIGURATIONS ...]
# [ENVIRONMENT ...] [PROPERTIES ...] [GOOGLETEST]): a CTest test. A name that exists in several builds gets the build's
# behind it. LOAD: how many quarters of a core it keeps busy (4), for CTest to run others beside it; tools/test gives it
# four places for each core. The exit code 77 says that it could not run here, and the last line of output why; GOOGLETEST:
# it notes itself what it skips (tests/run_tests.h).
function(uroce_add_test)
  cmake_parse_arguments(ARG "GOOGLETEST" "NAME;TIMEOUT;LOAD" "COMMAND;IN;LABELS;CONFIGURATIONS;ENVIRONMENT;PROPERTIES" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN sanitize)
  endif()
  uroce_wanted(build ${ARG_IN})
  if(NOT build)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_LOAD)
    set(ARG_LOAD 4)
  endif()
  list(LENGTH ARG_IN builds)
  if(builds GREATER 1)
    string(APPEND ARG_NAME _${build})
  endif()
  list(POP_FRONT ARG_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  if(ARG_ENVIRONMENT)  # for the program alone: it may preload a library
    list(PREPEND program env ${ARG_ENVIRONMENT})
  endif()
  set(recorded ${PROJECT_SOURCE_DIR}/tests/recorded_test.sh)
  if(ARG_GOOGLETEST)
    list(APPEND recorded --notes-itself)
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${recorded} ${ARG_NAME} ${program} ${ARG_COMMAND} CONFIGURATIONS ${ARG_CONFIGURATIONS})
  set_tests_properties(${ARG_NAME} PROPERTIES
    LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} PROCESSORS ${ARG_LOAD}
    SKIP_RETURN_CODE 77 ${ARG_PROPERTIES})
endfunction()

# uroce_test_library(name SOURCES ... [DEPENDS ...]): uroce_name, what the test code of several binaries has in common.
function(uroce_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(uroce_${name} STATIC EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(uroce_${name} PUBLIC uroce_options GTest::gmock GTest::gtest ${ARG_DEPENDS})
  target_compile_options(uroce_${name} PRIVATE ${UROCE_TEST_OPTIONS})
  target_precompile_headers(uroce_${name} REUSE_FROM uroce_test_headers)
  uroce_unity(uroce_${name})
endfunction()

# uroce_test(name SOURCES ... [DEPENDS ...] [IN BUILD...] [LABELS ...] [TIMEOUT seconds] [LOAD quarters] [PROPERTIES ...]
# [LONG test...] [ONE_THREAD test...] [SEPARATE]): a GoogleTest binary, one CTest test. LONG: tests of it, as GoogleTest's
# filter has them, that run in the release build, as name_long: much virtual time, which takes ten times as long with ASan; so
# they do at night, as name_long_asan.
# ONE_THREAD: those of which TSan has nothing to say. SEPARATE: its sources use the same names for different things. Settings
# of the target after it: if(TARGET name).
function(uroce_test name)
  cmake_parse_arguments(ARG "SEPARATE" "TIMEOUT;LOAD" "SOURCES;DEPENDS;IN;LABELS;PROPERTIES;LONG;ONE_THREAD" ${ARGN})
  if(NOT ARG_IN)
    set(ARG_IN sanitize)
  endif()
  uroce_wanted(build ${ARG_IN})
  set(long)
  if(ARG_LONG)
    uroce_wanted(long release)
  endif()
  if(NOT build AND NOT long)
    return()
  endif()
  list(JOIN ARG_LONG ":" filter)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE uroce_options ${ARG_DEPENDS} uroce_test_main)
  target_compile_options(${name} PRIVATE ${UROCE_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM uroce_test_headers)
  if(NOT ARG_SEPARATE)
    uroce_unity(${name})
  endif()
  if(long AND NOT build)
    uroce_add_test(NAME ${name}_long COMMAND ${name} --gtest_filter=${filter} GOOGLETEST IN release LABELS ${ARG_LABELS})
    return()
  endif()
  set(without)
  if(filter AND NOT long)  # they are in the release build; at night, which has all of the suite there, with ASan as well
    set(without ${ARG_LONG})
    if(build STREQUAL sanitize)
      uroce_add_test(NAME ${name}_long_asan COMMAND ${name} --gtest_filter=${filter} GOOGLETEST IN sanitize
        CONFIGURATIONS night LABELS ${ARG_LABELS} TIMEOUT 3600)
    endif()
  endif()
  if(build STREQUAL tsan)
    list(APPEND without ${ARG_ONE_THREAD})
  endif()
  set(filter)
  if(without)
    list(JOIN without ":" filter)
    set(filter --gtest_filter=-${filter})
  endif()
  uroce_add_test(NAME ${name} COMMAND ${name} ${filter} GOOGLETEST IN ${ARG_IN}
    LABELS ${ARG_LABELS} TIMEOUT ${ARG_TIMEOUT} LOAD ${ARG_LOAD} PROPERTIES ${ARG_PROPERTIES})
endfunction()

# uroce_program(name SOURCES ... [DEPENDS ...] [IN BUILD...]): a program that tests run, or a tool; without IN in all builds.
function(uroce_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;IN" ${ARGN})
  uroce_wanted(build ${ARG_IN})
  if(ARG_IN AND NOT build)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE uroce_options ${ARG_DEPENDS})
  target_compile_options(${name} PRIVATE ${UROCE_PROGRAM_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM uroce_program_headers)
endfunction()
