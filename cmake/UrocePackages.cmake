# SPDX-License-Identifier: BSD-2-Clause
# Packages for distributions that have RPM: cpack -G RPM --config build/DIRECTORY/CPackConfig.cmake. Those for Debian are
# made by tools/package. Which libraries they need, rpm finds out.
set(CPACK_GENERATOR RPM)
set(CPACK_PACKAGE_NAME uroce)
set(CPACK_PACKAGE_VENDOR "uroce authors")
set(CPACK_SET_DESTDIR ON)  # the unit names the program where it will lie
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_RPM_PACKAGE_RELOCATABLE OFF)
set(CPACK_STRIP_FILES ON)
set(CPACK_RPM_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_RPM_MAIN_COMPONENT Unspecified)
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE "BSD-2-Clause AND (BSD-2-Clause OR GPL-2.0-only) AND GPL-2.0-or-later")
set(CPACK_RPM_PACKAGE_SUMMARY "RDMA without RDMA hardware: RoCE v2 in user space")
set(CPACK_RPM_PACKAGE_DESCRIPTION
  "Programs that use libibverbs run unmodified on a machine with an ordinary network interface, without an RDMA device "
  "and without any RDMA kernel module, and speak RoCE v2 on the wire.")
string(CONCAT CPACK_RPM_PACKAGE_DESCRIPTION ${CPACK_RPM_PACKAGE_DESCRIPTION})
# The private directory holds a libibverbs.so.1, which is nobody's but uroce's.
set(CPACK_RPM_SPEC_MORE_DEFINE "%global __provides_exclude_from ^/usr/lib/uroce/.*$\n%define _build_id_links none")
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION
  /usr/lib/systemd /usr/lib/systemd/system /usr/share/man /usr/share/man/man1 /usr/share/man/man8
  /usr/share/bash-completion /usr/share/bash-completion/completions)
if(UROCE_DISSECTOR)
  list(APPEND CPACK_COMPONENTS_ALL dissector)
  set(CPACK_RPM_DISSECTOR_PACKAGE_NAME uroce-wireshark)
  set(CPACK_RPM_DISSECTOR_PACKAGE_SUMMARY "RDMA without RDMA hardware: RoCE v2 analysis for Wireshark")
  string(REGEX MATCH [0-9]+[.][0-9]+ branch "${UROCE_WIRESHARK_PLUGIN_DIR}")
  set(CPACK_RPM_DISSECTOR_PACKAGE_DESCRIPTION
    "A plugin for Wireshark ${branch} that finds what went wrong in a capture of RoCE v2, from whatever hosts.")
  set(directory ${UROCE_WIRESHARK_PLUGIN_DIR})
  while(directory MATCHES wireshark)
    list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${directory})
    cmake_path(GET directory PARENT_PATH directory)
  endwhile()
  list(APPEND CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION ${directory})
endif()
include(CPack)
