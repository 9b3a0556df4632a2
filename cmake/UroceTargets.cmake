# Shared target settings: warnings are errors, sanitizers by preset, one function per kind of target.

add_library(uroce_options INTERFACE)
target_compile_options(uroce_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wimplicit-fallthrough -Wcast-align -Werror>)
target_include_directories(uroce_options INTERFACE ${CMAKE_SOURCE_DIR})

set(UROCE_SANITIZE "" CACHE STRING "Value for -fsanitize=, e.g. address,undefined or thread")
if(UROCE_SANITIZE)
  add_compile_options(-fsanitize=${UROCE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${UROCE_SANITIZE})
endif()

if(UROCE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage for libFuzzer, without its main()
endif()

# uroce_library(name SOURCES ... [DEPENDS ...]): a static library of one directory, alias uroce::name.
function(uroce_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(uroce_${name} STATIC ${ARG_SOURCES})
  add_library(uroce::${name} ALIAS uroce_${name})
  target_link_libraries(uroce_${name} PUBLIC uroce_options ${ARG_DEPENDS})
endfunction()

# For a library that is loaded into programs of others: it brings no libstdc++, of which the program may have another
# version, and nothing that it does not call. A sanitizer's run-time wants the shared one. The version script has to hide
# what is linked statically. libgcc_s stays shared: pthread_cancel() unwinds with it through our frames, and must not meet
# a second unwinder there.
function(uroce_in_foreign_processes name)
  target_link_options(${name} PRIVATE -Wl,--as-needed)
  if(NOT UROCE_SANITIZE)
    target_link_options(${name} PRIVATE -static-libstdc++)
  endif()
endfunction()

# Test code is compiled for the compiler's speed; the code under test keeps the preset's optimisation.
set(UROCE_TEST_OPTIONS -O0 -g1)

# uroce_test(name SOURCES ... [DEPENDS ...] [LABELS ...]): a GoogleTest binary registered with CTest as one test.
function(uroce_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE uroce_options ${ARG_DEPENDS} GTest::gtest_main GTest::gmock)
  target_compile_options(${name} PRIVATE ${UROCE_TEST_OPTIONS})
  target_precompile_headers(${name} REUSE_FROM uroce_test_headers)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 300)
endfunction()
