# SPDX-License-Identifier: BSD-2-Clause
# Writes the header FILE that says from which commit of the repository SOURCE the build is: empty without a repository or
# git. Only when it changes, so that nothing is compiled again for it.
cmake_minimum_required(VERSION 3.25)
set(commit "")
find_program(git git)
if(git AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${git} -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  endif()
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "#define UROCE_COMMIT \"@commit@\"\n" @ONLY)
