// SPDX-License-Identifier: BSD-2-Clause
/* A library that looks for RDMA devices as soon as it is loaded. Preloaded by programs_test.cc. */
#include <dirent.h>
#include <stdio.h>

__attribute__((constructor)) static void look(void) {
  DIR* directory = opendir("/sys/class/infiniband");
  const struct dirent* entry;
  while (directory != NULL && (entry = readdir(directory)) != NULL) {
    if (entry->d_name[0] != '.') printf("early: %s\n", entry->d_name);
  }
  if (directory != NULL) closedir(directory);
}
